// Options that make a plan fit the memory.
#pragma once

#include <string>

#include "models/answers/plan_trial.h"
#include "models/workload/dispatcher_spec.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// A change with which a plan that does not fit surely fits.
struct FittingChange {
  std::string options;  // as on a command line: "--recompute moe_act"; empty: none was found
  double seconds = 0;   // step time with the change
  int tried = 0, fitting = 0;
};

// Returns the change with the shortest step among recomputation, optimizer and gradient types, sharding, more
// expert parallelism, smaller microbatches and fp8, each alone; where none suffices, two of them together. Of a
// layer, whose question is not the plan: the smallest pipeline that fits. `scenario` is resolved.
FittingChange cheapest_fitting_change(const Scenario& scenario, const DispatcherSpec& dispatcher,
                                      const PlanRules& refused = {});

}  // namespace moesim::models
