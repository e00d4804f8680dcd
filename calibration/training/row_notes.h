// Reads what the free text of a table's row says about a training run.
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

// Settings that the words of a note say ("full-iteration graphs", "recompute mlp", "A2A overlap", "EP8",
// "mbs 1"); what a note says in other words is not taken.
std::vector<RowSetting> settings_of_note(std::string_view note);

// The dispatcher that a column names ("flex (HybridEP)", "alltoall", "TP"), `alltoall` being the framework's
// own; empty: the text names none that is known.
std::string dispatcher_of_text(std::string_view text, std::string_view alltoall);

}  // namespace moesim::calibration
