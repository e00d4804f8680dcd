// For each path of the machine and the plan: the nearest values at which another dispatcher wins, one path at
// a time.
#pragma once

#include <vector>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/comparison.h"

namespace moesim::tools {

// Without draws, with one routing for all layers, and with a budget of evaluations; a path without a forecast
// beside the present one is left out. `threads`: 0: all cores.
std::vector<Around> map_around(const Base& base, int threads);

}  // namespace moesim::tools
