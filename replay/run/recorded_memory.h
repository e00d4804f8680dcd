// Memory of the ranks of a recorded job, from the memory model of `compare`, since recordings contain only
// times.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/cluster.h"
#include "models/step/step_memory.h"
#include "replay/job/job_model.h"

namespace moesim::replay {

struct RecordedMemory {
  std::string dispatcher;
  models::StepMemory step;                             // of the fullest rank of each stage
  std::vector<std::vector<models::RankMemory>> ranks;  // [stage][rank of the dispatch group, TP fastest]

  const models::RankMemory& of(const Topology& topology, int rank) const;
};

// For training as the recorders do it: bf16 weights and activations, gradients and Adam's states in fp32 on
// every replica. Throws InputError where the model or the dispatcher contradicts the job.
RecordedMemory recorded_memory(const JobModel& job, const models::DispatcherSpec& dispatcher,
                               const models::Cluster& cluster, int microbatches);

}  // namespace moesim::replay
