// Shared parts of the results of what-if questions.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// {"dispatchers": [...], "fastest": name, "probability": p}.
nlohmann::ordered_json evaluation_json(const Comparison& evaluation);
// Returns the envelope of a result: its inputs with the base scenario, and that scenario's model.
nlohmann::ordered_json whatif_result(const Base& base, const std::vector<std::string>& warnings,
                                     const CommonOptions& common);

// Prints below an answer of which scenario it is: model, machine with its network, scope, and the plan
// that was chosen.
void print_asked(const Base& base);

// Warnings of many scenarios that another option or file answers: without those of what the profile was
// measured on and of what a dispatcher's program counts.
std::vector<std::string> many_to_act_on(const std::vector<std::string>& warnings, const Base& base);

// Formats a ratio of times as "-3.1 % (-3.4 to -2.8)".
std::string change_text(const models::Estimate& ratio);

}  // namespace moesim::tools
