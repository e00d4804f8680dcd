// Recordings of real runs from a CSV table, which other tools can write with a few lines of script.
#pragma once

#include <filesystem>
#include <string_view>

#include "traces/recording.h"

namespace moesim::traces {

// Reads one CSV file for all ranks; its first line names the columns, in any order:
//   rank, operation, start_us, duration_us            required in every row
//   stage, comm, group, elements, dtype               optional or empty
// A row without `comm` is an operation (docs/formats.md lists their names); one with it is a call inside the
// operation that spans it. Ignores empty lines and lines that start with #. Sizes of the plan come from the
// names of the file and its folder. Throws InputError "file:line: found X, expected Y" for unknown columns
// and words, numbers out of range, calls outside every operation, and operations of a rank that overlap.
Recording read_csv_recording(const std::filesystem::path& path);

}  // namespace moesim::traces
