// Fills in the parts of the plan that a question leaves open (rules: docs/scenario.md).
#pragma once

#include <string>

#include "models/workload/scenario.h"

namespace moesim::models {

// Whether a size of the plan was said: sizes that are left out then have their defaults.
bool says_plan(const Scenario& scenario);

struct ChosenPlan {
  std::string
      options;  // that say the same: "--tp 1 --pp 8 --ep 64 --global-batch 1024"; empty: none was open
  std::string because;  // one clause: what it was chosen by, and where the batch comes from
};

// Chooses the sizes and the recomputation of a step that were not said: those of the fastest plan that surely
// fits, on as few nodes as a plan fits where their number was not said, with the batch of the model's
// published training. What was said stays. Throws InputError where nothing fits. `threads`: 0: all cores.
ChosenPlan choose_plan(Scenario& scenario, int threads = 0);

// Chooses EP where it was not said and the rest of the plan is not searched: the largest that the experts and
// the GPUs of a pipeline stage allow, at both scopes.
ChosenPlan choose_expert_parallel(Scenario& scenario);

// Takes the batch of the model's published training where none was said. Returns its source, or "".
std::string choose_batch(Scenario& scenario);

}  // namespace moesim::models
