// `moesim whatif --sensitivity`: what a buyer pays for, as the elasticity of the time to every hardware
// number: by how many percent the time changes when the number grows by one percent.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/workload/scenario.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/progress.h"

namespace moesim::tools {

using Elasticities = std::vector<std::pair<std::string, models::Estimate>>;  // by dispatcher

struct Sensitivity {
  std::string path;  // "cluster.nic.bandwidth"
  std::string what;  // for people
  std::string value;
  Elasticities elasticity;
};

struct Sensitivities {
  Comparison baseline;
  std::vector<Sensitivity> numbers;  // the strongest (on the fastest dispatcher) first
  // Of all numbers at once, better: rates grow, latencies and launches shrink. -1 where all of the time
  // follows from them.
  Elasticities together;
};

// Central differences over 5 % up and down, under the same draws.
Sensitivities sensitivities(const models::Scenario& scenario, int draws, const Progress& progress = {});

int run_sensitivity(const Base& base, int draws, const CommonOptions& common);

}  // namespace moesim::tools
