// What every pipeline stage must hold for a training step under a plan: where it fits, where not, and which
// recomputation would make it fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/programs/memory.h"
#include "models/programs/program.h"
#include "models/workload/layer_stack.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

struct StepMemory {
  RankMemory worst;  // of the stage that holds most
  int stage = 0;
  double max_bytes = 0;
  double limit_bytes = 0;  // of the GPU, less what the framework and libraries hold
  bool fits = true;
  double missing_bytes = 0;
  // The cheapest recomputation, in the order core_attn .. full, with which it would fit; empty where it fits
  // or where none helps.
  std::string recompute_that_fits;
};

// `program`: of a MoE layer, under the plan's recomputation; may be null for a dense model. `in_flight`:
// chunks whose activations a stage holds at most, by stage.
StepMemory step_memory(const Architecture& model, const Parallel& parallel, const TrainingPlan& plan,
                       const Program* program, const std::vector<Chunk>& chunks,
                       const std::vector<int>& in_flight, double gpu_bytes);

// Parameters of one rank in a chunk: dense part and experts.
StageParameters chunk_parameters(const Architecture& model, const Parallel& parallel, const Chunk& chunk);

}  // namespace moesim::models
