// Which options make a plan fit that does not.
#pragma once

#include <string>

#include "models/workload/dispatcher_spec.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// A change of a plan that does not fit, with which it does.
struct FittingChange {
  std::string options;  // as on a command line: "--recompute moe_act"; empty: none was found
  double seconds = 0;   // of the step then
  int tried = 0, fitting = 0;
};

// Returns the change with the shortest step among recomputation, optimizer and gradient types, sharding, more
// expert parallelism, smaller microbatches and fp8, each alone; where none is enough, two of them together.
// `scenario` is resolved.
FittingChange cheapest_fitting_change(const Scenario& scenario, const DispatcherSpec& dispatcher);

}  // namespace moesim::models
