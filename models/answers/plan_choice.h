// What a question leaves open of its plan, chosen. Who chooses when stands in docs/scenario.md.
#pragma once

#include <string>

#include "models/workload/scenario.h"

namespace moesim::models {

// Whether somebody said a size of the plan: what is left out then has its default.
bool says_plan(const Scenario& scenario);

struct ChosenPlan {
  std::string
      options;  // that say the same: "--tp 1 --pp 8 --ep 64 --global-batch 1024"; empty: none was open
  std::string because;  // one clause: what it was chosen by, and where the batch comes from
};

// Chooses what nobody said: of a step the sizes and the recomputation with which the fastest plan that surely
// fits comes, on as few nodes as a plan fits where nobody said how many, and the batch of the model's
// published training; of a layer the largest EP that experts and GPUs allow. What somebody said stays. Throws
// InputError where nothing fits. `threads`: 0: all cores.
ChosenPlan choose_plan(Scenario& scenario, int threads = 0);

// The batch of the model's published training where nobody said one; what it says of that, or "".
std::string choose_batch(Scenario& scenario);

}  // namespace moesim::models
