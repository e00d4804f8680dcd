// How a job's layers are cut into pipeline chunks and in which order its stages run them; no price changes
// it.
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
  std::vector<Chunk> chunks;                        // cut by the FLOPs of the layers

  // `overlaps_batches`: the dispatcher runs forward and backward of two microbatches together, whatever the
  // plan says. Throws InputError for plans that do not fit together.
  JobPlan(const Scenario& scenario, bool overlaps_batches);
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
