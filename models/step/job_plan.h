// How a job's layers are cut into pipeline chunks and in which order its stages run them.
#pragma once

#include <vector>

#include "models/step/layer_programs.h"
#include "models/step/pipeline_schedule.h"
#include "models/step/step_memory.h"
#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"

namespace moesim::models {

struct JobPlan {
  PipelineShape shape;
  std::vector<std::vector<PipelineSlot>> schedule;  // by stage
  std::vector<Chunk> chunks;

  // Cut by the time of the dispatcher's layers on the scenario's machine without its faults. Throws
  // InputError for plans that do not fit together.
  JobPlan(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing);
  // Cut by the FLOPs of the layers, where there is no dispatcher to time. `overlaps_batches`: the dispatcher
  // runs forward and backward of two microbatches together, whatever the plan says.
  JobPlan(const Scenario& scenario, bool overlaps_batches);

 private:
  JobPlan(bool overlaps_batches, const Scenario& scenario);  // without chunks
};

// What every stage of the job holds under a dispatcher, and whether it fits.
StepMemory memory_of(const Scenario& scenario, const JobPlan& plan, const LayerPrograms& programs,
                     const JobRouting& routing);
// The same of a model without experts.
StepMemory memory_of(const Scenario& scenario, const JobPlan& plan);
// Bytes that one forward pass of each chunk keeps on the busiest rank.
std::vector<double> kept_by_pass(const Scenario& scenario, const JobPlan& plan,
                                 const LayerPrograms& programs);

}  // namespace moesim::models
