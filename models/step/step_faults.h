// Where the faults of a scenario's machine meet the pipeline of a training step.
#pragma once

#include <string>
#include <vector>

#include "models/step/faults.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Of every pipeline stage: its dispatch groups that have a fault, or one group where there is only jitter,
// which is the same in distribution everywhere. Empty where nothing is slow. Replicas of a pipeline wait for
// each other, so the slowest group of a stage may stand for the stage: exact for one fault; several in
// different replicas count as if they were in one pipeline. Appends a warning for faults of GPUs that the
// plan does not use.
std::vector<std::vector<RankFaults>> faults_of_stages(const Scenario& scenario,
                                                      std::vector<std::string>& warnings);

}  // namespace moesim::models
