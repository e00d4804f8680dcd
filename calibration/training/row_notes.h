// Reads settings from the free text of a training table's row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace moesim::calibration {

// A setting of a scenario: a path of models/workload/fields.h and its value.
struct RowSetting {
  std::string path;
  nlohmann::json value;
};

// Returns the settings that a note's words name ("full-iteration graphs", "recompute mlp", "A2A overlap",
// "EP8", "mbs 1"); other wording is ignored.
std::vector<RowSetting> settings_of_note(std::string_view note);

// Returns the dispatcher that a column names ("flex (HybridEP)", "alltoall", "TP"); `alltoall`: the
// framework's own; empty: no known one is named.
std::string dispatcher_of_text(std::string_view text, std::string_view alltoall);

}  // namespace moesim::calibration
