// Writer of CMD recordings; gives the bytes back that the reader took in.
#pragma once

#include <filesystem>
#include <string>

#include "traces/recording.h"

namespace moesim::traces {

// The text of one rank file. Throws InputError for a recording that the format cannot hold (a description
// with a line break, a name with a comma), so that whatever is written can be read.
std::string write_cmd_text(const RankRecording& rank);

// Writes one file per rank into `folder`, which must not exist or be empty: all files or none. Files keep the
// names they were read from; ranks made by a program become "rank00.txt", ... Throws InputError.
void write_cmd(const Recording& recording, const std::filesystem::path& folder);

// The two recordings of a job, `folder`/scaling and `folder`/realistic, in the same way.
void write_cmd_job(const Recording& scaling, const Recording& realistic, const std::filesystem::path& folder);

}  // namespace moesim::traces
