// Machine-readable output of collective benchmarks: the JSON of nccl-tests (-J), the JSON and CSV of
// rccl-tests (-Z json, -Z csv).
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

bool is_nccl_json(std::string_view text);
bool is_rccl_csv(std::string_view text);

// Reads one object with "config" and "results" (nccl-tests), or a list of records with "algBw" (rccl-tests).
// Ignores keys unrelated to size, time and ranks.
Imported read_nccl_json(std::string_view text, const std::string& file, const ImportFacts& facts);

// Reads the same records as a table with a header.
Imported read_rccl_csv(std::string_view text, const std::string& file, const ImportFacts& facts);

}  // namespace moesim::calibration
