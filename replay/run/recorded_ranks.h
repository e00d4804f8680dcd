// What the ranks of a recorded job hold and compute: memory, from the memory model of `compare` since recordings
// contain only times, and the overload of the experts (docs/spec.md 4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/hardware/cluster.h"
#include "models/routing/overload.h"
#include "models/step/step_memory.h"
#include "replay/job/job_model.h"
#include "replay/recording/denoise.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

struct RecordedMemory {
  std::string dispatcher;
  models::StepMemory step;                             // of the fullest rank of each stage
  std::vector<std::vector<models::RankMemory>> ranks;  // [stage][rank of the dispatch group, TP fastest]
  std::vector<std::vector<double>> kept;               // by a forward pass for its backward, as `ranks`

  const models::RankMemory& of(const Topology& topology, int rank) const;
  // Returns microseconds and the bytes that the rank holds from then on, through the iteration: a forward
  // pass adds the tensors that it keeps, its backward pass frees them. The transient memory of a pass is known at
  // the peak of the stage and counts in passes of that kind.
  std::vector<std::pair<double, double>> over_time(const Iteration& iteration, int rank) const;
};

// Returns the memory of a training like the recorders': bf16 weights and activations, fp32 gradients and Adam
// states on every replica. Throws InputError where the model or the dispatcher contradicts the job.
RecordedMemory recorded_memory(const JobModel& job, const models::DispatcherSpec& dispatcher,
                               const models::Cluster& cluster, int microbatches);

struct RecordedOverload {
  std::vector<models::Overload> stages;  // of the routing, by stage
  std::vector<models::Overload> logged;  // as the job's log shows them: ETP times larger
  std::int64_t entries = 0;              // MoE layers x microbatches over all stages
  int replicas = 1;                      // of the experts
};

// For the plans of an iteration, in their order. Rows are those of the exchanges between the experts' ranks;
// where the calls do not show them (AllGather), those of a given routing in `clean`. nullopt where they are
// unknown.
std::optional<RecordedOverload> recorded_overload(const Topology& topology, std::span<const RankSteps> plans,
                                                  const CleanJob* clean);

}  // namespace moesim::replay
