// NCCL Inspector's log: a JSON object a line, of every collective that a process took part in (README of
// plugins/profiler/inspector in NVIDIA/nccl, formats 4.0 to 4.3).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

bool is_inspector_log(std::string_view text);

// The logs of one job, a file a process: a row for each operation, size and shape of a communicator. A call
// lasts as long as on the rank that waited least (coll_exec_time_us holds the wait for ranks that come
// later); a row is the median over calls. Sizes become those of nccl-tests: the log's are of one rank where
// the operation gathers or scatters. Sends, receives, proxy records and operations that no forecast uses are
// left out and named, as are calls of which not all ranks are there. Throws InputError by line for a
// truncated line, a dump that lacks records, a bandwidth that contradicts size, time and ranks, ranks of one
// call that disagree, a GPU that nothing names, files without rows. `text_of` gives a file's text; one is
// held at a time.
Imported import_inspector(const std::vector<std::string>& files,
                          const std::function<std::string(const std::string&)>& text_of,
                          const ImportFacts& facts);

}  // namespace moesim::calibration
