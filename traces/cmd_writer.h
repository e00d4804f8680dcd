// Writer of CMD recordings; reproduces the bytes that the reader read.
#pragma once

#include <filesystem>
#include <string>

#include "traces/recording.h"

namespace moesim::traces {

// Returns the text of one rank file. Throws InputError for a recording that the format cannot represent (a
// description with a line break, a name with a comma), so that all output can be read.
std::string write_cmd_text(const RankRecording& rank);

// Writes one file per rank into `folder`, which must not exist or be empty: all files or none. Files keep
// their original names; generated ranks become "rank00.txt", ... Throws InputError.
void write_cmd(const Recording& recording, const std::filesystem::path& folder);

// Writes the two recordings of a job to `folder`/scaling and `folder`/realistic, in the same way.
void write_cmd_job(const Recording& scaling, const Recording& realistic, const std::filesystem::path& folder);

}  // namespace moesim::traces
