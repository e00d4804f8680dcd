// Overload factors of a training step as a job would log them: over layers and microbatches of every stage,
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
struct PipelineLayout;
struct Scenario;

struct StepOverload {
  std::vector<Overload> stages;  // of the routing, by stage
  std::vector<Overload> logged;  // as the job's log shows them: ETP times larger, since u contains no ETP
  std::int64_t entries = 0;      // MoE layers x microbatches of the step, for one replica
  std::int64_t recorded = 0;     // entries in the log
  int replicas = 1, of_replicas = 1;  // replicas of the experts whose routing was counted, and in total
  std::int64_t routings = 1;          // drawn routings per layer; further microbatches repeat them
  OverloadBuffers rows;               // buffer rows on the worst rank
  double forward_bytes = 0;           // of the buffer that receives one layer's rows
  double retained_bytes = 0;          // that the dispatcher's program keeps for these rows until backward

  // As Megatron prints it: by the last stage.
  Overload printed() const { return stages.empty() ? Overload{} : stages.back(); }
};

// Draws the routing of as many replicas and microbatches as is cheap, then repeats from the start.
StepOverload overload_of_step(const Scenario& scenario, const PipelineLayout& plan,
                              const LayerPrograms& programs, const JobRouting& routing);
// Likewise for one layer and microbatch.
StepOverload overload_of_layer(const Scenario& scenario, const LayerPrograms& programs);

// Cost of logging at the end of a step: consecutive all-reduces while nothing else runs.
struct OverloadReport {
  int calls = 0;
  double seconds = 0;
};
// Zero where the plan logs nothing.
OverloadReport overload_report(const Scenario& scenario, const PipelineLayout& plan,
                               const LayerPrograms& programs, const Placement& placement,
                               const ProgramPricer& pricer);

}  // namespace moesim::models
