// Pieces that the answers to what-if questions share.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/questions/scenario_document.h"
#include "tools/moesim/questions/whatif_evaluate.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// {"dispatchers": [...], "fastest": name, "probability": p}.
nlohmann::ordered_json evaluation_json(const Evaluation& evaluation);
// describe_inputs() with the scenario that the question starts from.
nlohmann::ordered_json whatif_inputs(const ScenarioDocument& base, const CommonOptions& common);

// "-3.1 % (-3.4 to -2.8)" of a ratio of times.
std::string change_text(const models::Estimate& ratio);

}  // namespace moesim::tools
