// Overload factors of a training step, as a job would log them: over layers and microbatches of every stage,
// the ranks of a dispatch group, the replicas of the experts and the pipeline (docs/spec.md 4).
#pragma once

#include <cstdint>
#include <vector>

#include "models/routing/overload.h"

namespace moesim::models {

class LayerPrograms;
class JobRouting;
class Placement;
class ProgramPricer;
struct JobPlan;
struct Scenario;

struct StepOverload {
  std::vector<Overload> stages;       // what the routing makes, by stage
  std::vector<Overload> logged;       // what the job's log says of it: ETP times that, for u has no ETP
  std::int64_t entries = 0;           // MoE layers x microbatches of the step, one replica
  std::int64_t recorded = 0;          // of them in the log
  int replicas = 1, of_replicas = 1;  // of the experts: whose routing was counted, of how many
  std::int64_t routings = 1;          // of a layer that were drawn; further microbatches repeat them
  OverloadBuffers rows;               // that follow, on the worst rank
  double forward_bytes = 0;           // of the buffer that one layer's rows come into
  double retained_bytes = 0;          // of what the dispatcher's program keeps for them until backward

  // As Megatron prints it: by the last stage.
  Overload printed() const { return stages.empty() ? Overload{} : stages.back(); }
};

// Routing of replicas and microbatches is drawn as far as that stays cheap, and repeated from the start then.
StepOverload overload_of_step(const Scenario& scenario, const JobPlan& plan, const LayerPrograms& programs,
                              const JobRouting& routing);
// The same of one layer and microbatch.
StepOverload overload_of_layer(const Scenario& scenario, const LayerPrograms& programs);

// What logging costs at the end of a step: all-reduces, one after the other, while nothing else runs.
struct OverloadReport {
  int calls = 0;
  double seconds = 0;
};
// Zero where the plan logs nothing.
OverloadReport overload_report(const Scenario& scenario, const JobPlan& plan, const LayerPrograms& programs,
                               const Placement& placement, const ProgramPricer& pricer);

}  // namespace moesim::models
