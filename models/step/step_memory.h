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
  int rank = 0;         // of the dispatch group, the one whose experts keep most
  int first_stage = 0;  // the first that does not fit, where one does not
  double max_bytes = 0;
  double limit_bytes = 0;  // of the GPU, less what the framework and libraries hold
  bool fits = true;
  double missing_bytes = 0;
  // The cheapest recomputation, in the order core_attn .. full, with which it would fit; empty where it fits
  // or where none helps.
  std::string recompute_that_fits;
};

struct MemoryQuestion {
  const Architecture* model = nullptr;  // with every copy of an expert
  Parallel parallel;
  const TrainingPlan* plan = nullptr;
  const Program* program = nullptr;  // of a MoE layer under the plan's recomputation; null for a dense model
  bool independent_layers = true;    // every layer has a routing of its own, or that of `program`
  const std::vector<Chunk>* chunks = nullptr;
  std::vector<int> in_flight;  // chunks whose activations a stage holds at most, by stage
  double gpu_bytes = 0;
  bool train = true;
};
StepMemory step_memory(const MemoryQuestion& question);

// Parameters of one rank in a chunk: dense part and experts.
StageParameters chunk_parameters(const Architecture& model, const Parallel& parallel, const Chunk& chunk);

}  // namespace moesim::models
