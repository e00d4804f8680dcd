// `moesim whatif --sensitivity`: the elasticity of the time to every hardware number, that is the percent
// change of the time for one percent growth of the number.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/workload/scenario.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

using Elasticities = std::vector<std::pair<std::string, models::Estimate>>;  // by dispatcher

struct Sensitivity {
  std::string path;  // "cluster.nic.bandwidth"
  std::string what;  // description
  std::string value;
  Elasticities elasticity;
};

struct Sensitivities {
  Comparison baseline;
  std::vector<Sensitivity> numbers;  // strongest (for the fastest dispatcher) first
  // For all numbers improved at once: rates grow, latencies and launches shrink. -1 where all of the time
  // depends on them.
  Elasticities together;
};

// Computes central differences over 5 % up and down, under the same draws.
Sensitivities sensitivities(const models::Scenario& scenario, int draws, const Progress& progress = {});

int run_sensitivity(const Base& base, int draws, const CommonOptions& common);

}  // namespace moesim::tools
