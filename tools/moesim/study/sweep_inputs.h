// The input files of a sweep's rows, read before the first row.
#pragma once

#include <functional>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/study/sweep_points.h"

namespace moesim::tools {

// Whether an axis is a value of the scenario.
using OfScenario = std::function<bool(const ScenarioPath&)>;

// Reads every file that the axes name, files named in these (a cluster's profile), and the routing of the
// base.
void read_named(
    const Base& base, const SweepPoints& points,
    const OfScenario& of_scenario = [](const ScenarioPath&) { return true; });

}  // namespace moesim::tools
