// For each path of the machine and the plan: the nearest values at which another dispatcher wins, one path at
// a time.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/questions/ask.h"

namespace moesim::tools {

// Returns a list of {"path", "what", "now", "from", "to", "below", "above"}: how far a path was moved and the
// nearest values on both sides with which another dispatcher is the fastest, {"value", "dispatcher"} or null.
// Values are for people. Without draws, with one routing for all layers, and with a budget of evaluations; a
// path without a forecast beside the present one is left out. `threads`: 0: all cores.
nlohmann::ordered_json map_around(const Base& base, int threads);

}  // namespace moesim::tools
