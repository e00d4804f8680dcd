// For each path of the machine and the plan: the nearest values at which another dispatcher wins, one path at
// a time.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/questions/ask.h"

namespace moesim::tools {

// Returns a list of {"path", "what", "now", "from", "to", "below", "above"}: the values of a path that were
// tried and the nearest ones on both sides with which another dispatcher is the fastest, {"value",
// "dispatcher"} or null. Values are for people. Without draws; a path without a forecast beside the present
// one is left out.
nlohmann::ordered_json map_around(const Base& base);

}  // namespace moesim::tools
