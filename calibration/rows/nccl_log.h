// Text output of nccl-tests and rccl-tests: one log with one or several tests, whole or an excerpt.
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

// Reads line by line. Strips launchers' prefixes ("[1,0]<stdout>:", "0: ", "node-1: ", times); a table
// belongs to the test that its section names, and to no other; ranks are identified by their numbers, not
// counted.
Imported read_nccl_log(std::string_view text, const std::string& file, const ImportFacts& facts);

// Returns a line without the prefixes of launchers and quotes; `launcher` receives the prefix without times.
std::string_view without_prefix(std::string_view line, std::string& launcher);

}  // namespace moesim::calibration
