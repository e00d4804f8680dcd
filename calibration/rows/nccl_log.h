// What nccl-tests and rccl-tests print: one log, of one or several tests, whole or cut out of a document.
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

// Reads line by line. Launchers' prefixes ("[1,0]<stdout>:", "0: ", "node-1: ", times) are taken off; a table
// is of the test that its section names, and of no other; ranks are numbered by their lines, not counted.
Imported read_nccl_log(std::string_view text, const std::string& file, const ImportFacts& facts);

// The rest of a line behind what launchers and quotes put in front; `launcher` is what was taken off, without
// times.
std::string_view without_prefix(std::string_view line, std::string& launcher);

}  // namespace moesim::calibration
