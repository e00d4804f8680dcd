// What collectives' benchmarks write for programs: the JSON of nccl-tests (-J), the JSON and CSV of
// rccl-tests
// (-Z json, -Z csv).
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

bool is_nccl_json(std::string_view text);
bool is_rccl_csv(std::string_view text);

// One object with "config" and "results" (nccl-tests), or a list of records with "algBw" (rccl-tests). Keys
// that say nothing of size, time and ranks are not looked at.
Imported read_nccl_json(std::string_view text, const std::string& file, const ImportFacts& facts);

// The same records as a table with a header.
Imported read_rccl_csv(std::string_view text, const std::string& file, const ImportFacts& facts);

}  // namespace moesim::calibration
