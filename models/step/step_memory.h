// What every pipeline stage must hold for a training step under a plan: where it fits, where not, how sure
// that is, and which recomputation would make it fit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/programs/memory.h"
#include "models/programs/program.h"
#include "models/step/pipeline_schedule.h"
#include "models/workload/layer_stack.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

// The part of a RankMemory that a cause belongs to.
enum class MemoryKind : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kTransient,
  kPersistent,
};
std::string_view name_of(MemoryKind kind);  // "parameters", ..., "persistent"

// One branch of the tree of causes; those of a kind add up to that kind's bytes.
struct MemoryCause {
  MemoryKind kind = MemoryKind::kParameters;
  std::string what;  // "experts (bf16)", "attention/queries, keys, values"
  double bytes = 0;
};

// A stage when its fullest rank holds most.
struct StageMemory {
  RankMemory bytes;
  std::string_view moment;  // "forward", "backward", "loss", "embedding gradient", "optimizer step"
  int in_flight = 0;        // passes whose activations the stage holds at most
  double low_bytes = 0, high_bytes = 0;  // 90 % of the routing draws
  double fits_probability = 1;
  double host_bytes = 0;  // what one rank keeps in the host's memory
  std::vector<MemoryCause> causes;
};

struct StepMemory {
  RankMemory worst;  // of the stage that holds most
  int stage = 0;
  int rank = 0;         // of the dispatch group, the one whose experts keep most
  int first_stage = 0;  // the first that does not fit, where one does not
  double max_bytes = 0;
  double limit_bytes = 0;  // of the GPU, less what the framework and libraries hold
  bool fits = true;
  // Share of the draws of routing (layers independent of each other) and of what the allocator adds under
  // which every stage fits.
  double fits_probability = 1;
  double missing_bytes = 0;
  double host_bytes = 0;  // in the host's memory, of the rank that keeps most there
  std::vector<StageMemory> stages;
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
  const std::vector<std::vector<PipelineSlot>>* schedule = nullptr;  // by stage
  double gpu_bytes = 0;
  bool train = true;
  std::uint64_t seed = 1;
};
StepMemory step_memory(const MemoryQuestion& question);

// Returns the bytes that one forward pass of each chunk keeps for backward, on the rank whose experts keep
// most.
std::vector<double> kept_by_pass(const MemoryQuestion& question);

// What PyTorch's caching allocator reserves for a byte that is allocated: measured on 8 x B200 over 17 jobs
// of Llama 3 and DeepSeek-V2 without imbalance 1.028 to 1.093, median 1.052 (SimuMax docs/b200, 4dcaae51).
inline constexpr double kReservedLow = 1.028, kReserved = 1.052, kReservedHigh = 1.093;
// Held beside the allocator by the CUDA context, loaded kernels and NCCL's buffers. Not measured here: 4 GB,
// and between a half and one and a half of it.
inline constexpr double kFramework = 4e9;

// Parameters of one rank in a chunk: dense part and experts.
StageParameters chunk_parameters(const Architecture& model, const Parallel& parallel, const Chunk& chunk);
// Those of them that have gradients and an optimizer: all, or the adapters beside them.
StageParameters trained_parameters(const Architecture& model, const Parallel& parallel, const Lora& lora,
                                   const Chunk& chunk);

}  // namespace moesim::models
