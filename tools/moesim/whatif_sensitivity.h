// `moesim whatif --sensitivity`: what a buyer pays for, as the elasticity of the time to every hardware
// number: by how many percent the time changes when the number grows by one percent.
#pragma once

#include <string>
#include <vector>

#include "models/estimate.h"
#include "models/scenario.h"
#include "tools/moesim/scenario_document.h"
#include "tools/moesim/verb.h"
#include "tools/moesim/whatif_evaluate.h"

namespace moesim::tools {

struct Sensitivity {
  std::string path;  // "cluster.nic.bandwidth"
  std::string what;  // for people
  std::string value;
  std::vector<std::pair<std::string, models::Estimate>> elasticity;  // by dispatcher
};

// Central differences over 5 % up and down, under the same draws; the strongest (on the fastest dispatcher)
// first.
std::vector<Sensitivity> sensitivities(const models::Scenario& scenario, int draws, Evaluation& baseline);

int run_sensitivity(const ScenarioDocument& base, int draws, const CommonOptions& common);

}  // namespace moesim::tools
