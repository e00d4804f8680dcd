// NCCL Inspector's log: one JSON object per line for every collective of a process (README of
// plugins/profiler/inspector in NVIDIA/nccl, formats 4.0 to 4.3).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

bool is_inspector_log(std::string_view text);

// Imports the logs of one job, one file per process: a row for each operation, size and shape of a
// communicator. A call's duration is that of the rank that waited least (coll_exec_time_us includes waiting
// for later ranks); a row is the median over calls. Sizes are converted to those of nccl-tests: the log's are
// of one rank where the operation gathers or scatters. Sends, receives, proxy records, operations that no
// forecast uses, and calls with missing ranks are left out and named. Throws InputError with the line for a
// truncated line, a dump that lacks records, a bandwidth that contradicts size, time and ranks, ranks of one
// call that disagree, a missing GPU name, and files without rows. `text_of` returns a file's text; one is
// held at a time.
Imported import_inspector(const std::vector<std::string>& files,
                          const std::function<std::string(const std::string&)>& text_of,
                          const ImportFacts& facts);

}  // namespace moesim::calibration
