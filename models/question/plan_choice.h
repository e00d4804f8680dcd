// Fills in the parts of the plan that a question leaves open (rules: docs/scenario.md).
#pragma once

#include <string>

#include "models/answers/plan_trial.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Returns whether any size of the plan was given; the sizes left out then have their defaults.
bool says_plan(const Scenario& scenario);

struct ChosenPlan {
  std::string
      options;  // the choice as options: "--tp 1 --pp 8 --ep 64 --global-batch 1024"; empty: nothing was open
  std::string because;  // one clause: the criterion of the choice, and the source of the batch
};

// Chooses the sizes and the recomputation of a step that were not given: those of the fastest plan that
// surely fits, on the fewest nodes that fit a plan where their number was not given, with the batch of the
// model's published training. Given values stay. Throws InputError where nothing fits or is legal; where more
// GPUs are needed, with their number. `threads`: 0: all cores.
ChosenPlan choose_plan(Scenario& scenario, int threads = 0, const PlanRules& refused = {});

// Chooses EP where it was not given and the rest of the plan is not searched: the largest that the experts
// and the GPUs of a pipeline stage allow, at both scopes.
ChosenPlan choose_expert_parallel(Scenario& scenario);

// Sets the batch of the model's published training where none was given. Returns its source, or "".
std::string choose_batch(Scenario& scenario);

}  // namespace moesim::models
