// Pieces that the answers to what-if questions share.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// {"dispatchers": [...], "fastest": name, "probability": p}.
nlohmann::ordered_json evaluation_json(const Comparison& evaluation);
// The envelope of a result: its inputs with the scenario that the question starts from, and that one's model.
nlohmann::ordered_json whatif_result(const Base& base, const std::vector<std::string>& warnings,
                                     const CommonOptions& common);

// "-3.1 % (-3.4 to -2.8)" of a ratio of times.
std::string change_text(const models::Estimate& ratio);

}  // namespace moesim::tools
