// Applies the faults of a scenario's machine to the stages of a pipeline.
#pragma once

#include <string>
#include <vector>

#include "models/step/faults.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Returns for every pipeline stage the dispatch groups with a fault, or one group where there is only jitter,
// whose distribution is the same everywhere. Empty where nothing is slow. Replicas of a pipeline wait for
// each other, so the slowest group of a stage stands for the stage: exact for one fault; several faults in
// different replicas count as if they were in one pipeline. Appends a warning for faults of GPUs that the
// plan does not use.
std::vector<std::vector<RankFaults>> faults_of_stages(const Scenario& scenario,
                                                      std::vector<std::string>& warnings);

}  // namespace moesim::models
