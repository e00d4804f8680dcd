// The cut of a job's layers into pipeline chunks, and the order in which its stages run them.
#pragma once

#include <vector>

#include "models/step/layer_programs.h"
#include "models/step/pipeline_schedule.h"
#include "models/step/step_memory.h"
#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"

namespace moesim::models {

struct PipelineLayout {
  PipelineShape shape;
  std::vector<std::vector<PipelineSlot>> schedule;  // by stage
  std::vector<Chunk> chunks;

  // Cuts by the time of the dispatcher's layers on the scenario's machine without faults. Throws InputError
  // for inconsistent plans.
  PipelineLayout(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing);
  // Cuts by the FLOPs of the layers, where there is no dispatcher to time. `overlaps_batches`: the dispatcher
  // runs forward and backward of two microbatches together, whatever the plan says.
  PipelineLayout(const Scenario& scenario, bool overlaps_batches);

 private:
  PipelineLayout(bool overlaps_batches, const Scenario& scenario);  // without chunks
};

// Returns the memory of every stage under a dispatcher, and whether it fits.
StepMemory memory_of(const Scenario& scenario, const PipelineLayout& plan, const LayerPrograms& programs,
                     const JobRouting& routing);
// Likewise for a dense model.
StepMemory memory_of(const Scenario& scenario, const PipelineLayout& plan);
// Returns the bytes that one forward pass of each chunk keeps on the busiest rank.
std::vector<double> kept_by_pass(const Scenario& scenario, const PipelineLayout& plan,
                                 const LayerPrograms& programs);

}  // namespace moesim::models
