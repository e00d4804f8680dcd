// A resolved scenario with the programs and prices of its first dispatcher, all of which refer to it.
#pragma once

#include <utility>

#include "models/costs/program_prices.h"
#include "models/step/layer_programs.h"
#include "models/workload/placement.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {

struct JobWithPrograms {
  explicit JobWithPrograms(Scenario given) : scenario(resolved(std::move(given))) {}
  JobWithPrograms(const JobWithPrograms&) = delete;
  JobWithPrograms& operator=(const JobWithPrograms&) = delete;

  Scenario scenario;
  JobRouting routing{scenario};
  Placement placement{scenario};
  LayerPrograms programs{scenario, scenario.dispatchers.front(), routing, placement,
                         placement.dispatch_classes().front()};
  ProgramPricer pricer{*scenario.cluster};
};

}  // namespace moesim::models::testing
