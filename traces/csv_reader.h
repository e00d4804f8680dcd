// Recordings of real runs out of a table: what any other tool can write with a few lines of script.
#pragma once

#include <filesystem>
#include <string_view>

#include "traces/recording.h"

namespace moesim::traces {

// One CSV file for all ranks, its first line names the columns, in any order:
//   rank, operation, start_us, duration_us            needed in every row
//   stage, comm, group, elements, dtype               may be left out or empty
// A row without `comm` is an operation (docs/formats.md has their names); one with it is a call inside the
// operation that spans it. Empty lines and lines that start with # are left alone. Sizes of the plan come
// from the names of the file and its folder. Throws InputError "file:line: found X, expected Y" for unknown
// columns and words, numbers out of range, calls outside every operation and operations of a rank that
// overlap.
Recording read_csv_recording(const std::filesystem::path& path);

}  // namespace moesim::traces
