// The files that rows of a sweep follow from, read before the first of them.
#pragma once

#include "tools/moesim/questions/scenario_document.h"
#include "tools/moesim/sweeps/sweep_plan.h"

namespace moesim::tools {

// Reads every file that the axes name, what these name (a cluster's profile), and the routing of the base.
void read_named(const ScenarioDocument& base, const SweepPlan& plan);

}  // namespace moesim::tools
