// Memory of every pipeline stage for a training step under a plan: whether it fits, with what probability,
// and the recomputation with which it would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/programs/memory.h"
#include "models/programs/program.h"
#include "models/step/pipeline_schedule.h"
#include "models/workload/layer_stack.h"
#include "models/workload/training_settings.h"

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

// One leaf of the tree of causes; causes of a kind add up to that kind's bytes.
struct MemoryCause {
  MemoryKind kind = MemoryKind::kParameters;
  std::string what;  // "experts (bf16)", "attention/queries, keys, values"
  double bytes = 0;
};

// A stage at the peak of its fullest rank.
struct StageMemory {
  RankMemory bytes;
  std::string_view moment;  // "forward", "backward", "loss", "embedding gradient", "optimizer step"
  int in_flight = 0;        // most passes whose activations the stage holds at once
  double low_bytes = 0, high_bytes = 0;  // 90 % interval over the routing draws
  double fits_probability = 1;
  double host_bytes = 0;  // in the host's memory, per rank
  std::vector<MemoryCause> causes;
};

struct StepMemory {
  RankMemory worst;  // of the stage with the highest peak
  int stage = 0;
  int rank = 0;         // rank in the dispatch group whose experts keep most
  int first_stage = 0;  // the first stage that does not fit, if any
  double max_bytes = 0;
  double limit_bytes = 0;  // of the GPU, less the memory of framework and libraries
  bool fits = true;
  // Share of the draws of routing (independent between layers) and of allocator overhead in which every stage
  // fits.
  double fits_probability = 1;
  double missing_bytes = 0;
  double host_bytes = 0;  // in the host's memory, for the rank with the most
  std::vector<StageMemory> stages;
  // Only in an answer: the cheapest recomputation, in the order core_attn to full, with which the step would fit.
  // It is empty where the step fits and where no recomputation helps.
  std::string recompute_that_fits;
};

struct MemoryQuestion {
  const Architecture* model = nullptr;  // with every copy of an expert
  Parallel parallel;
  const TrainingSettings* plan = nullptr;
  const Program* program = nullptr;  // of a MoE layer under the plan's recomputation; null for a dense model
  bool independent_layers = true;    // each layer has its own routing; false: that of `program`
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

// Bytes that PyTorch's caching allocator reserves per allocated byte: measured on 8 x B200 over 17 jobs of
// Llama 3 and DeepSeek-V2 without imbalance, 1.028 to 1.093, median 1.052 (SimuMax docs/b200, 4dcaae51).
inline constexpr double kReservedLow = 1.028, kReserved = 1.052, kReservedHigh = 1.093;
// Memory outside of the allocator for the CUDA context, loaded kernels and NCCL's buffers. An assumption: 4
// GB, drawn between 0.5 and 1.5 times that.
inline constexpr double kFramework = 4e9;

// Returns the parameters of one rank in a chunk: dense part and experts.
StageParameters chunk_parameters(const Architecture& model, const Parallel& parallel, const Chunk& chunk);
// Returns the parameters with gradients and optimizer state: all, or with LoRA the adapters.
StageParameters trained_parameters(const Architecture& model, const Parallel& parallel, const Lora& lora,
                                   const Chunk& chunk);

}  // namespace moesim::models
