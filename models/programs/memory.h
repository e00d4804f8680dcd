// What a rank must hold for a training step: weights, gradients, optimizer, saved activations at their
// imbalanced sizes, transients.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/parallel.h"
#include "models/workload/sharding.h"

namespace moesim::models {

// How weights and optimizer state are kept. Bytes per parameter.
struct MemoryPlan {
  double weight_bytes = 2;      // bf16
  double gradient_bytes = 4;    // fp32 accumulation, as Megatron does
  double optimizer_bytes = 12;  // fp32 master weights and two Adam moments
  // What is shared out over DP x CP (dense) and EDP (experts): nothing (DDP), the optimizer (ZeRO-1), or
  // weights and gradients too (FSDP; HSDP inside `shard_group` ranks). Gathered weights of one layer are
  // transient.
  ShardingScheme sharding = ShardingScheme::kZero1;
  std::int64_t shard_group = 0;
  bool train = true;
};

struct RankMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, transient = 0, persistent = 0;
  double total() const { return parameters + gradients + optimizer + activations + transient + persistent; }
};

struct MemoryForecast {
  RankMemory worst;
  int rank = 0;   // of the dispatch group
  int stage = 0;  // of the pipeline
  double max_bytes = 0;
  double limit_bytes = 0;
  bool fits = true;
  double missing_bytes = 0;  // on the worst rank
  // The first rank (lowest stage, then lowest rank of its dispatch group) that does not fit, and by how much.
  int first_rank = -1, first_stage = -1;
  double first_missing_bytes = 0;
};

// What a rank holds after each allocation and release of one MoE layer's program, when all else of its plan
// is there: the last microbatch in flight, the last MoE layer of the stage.
struct MemoryPoint {
  bool forward = true;
  std::int32_t op = 0;    // index into the pass
  std::string_view what;  // that was allocated or freed
  double bytes = 0;       // held from then on
};
std::vector<MemoryPoint> memory_of_layer(const Program& program, int rank, const RankMemory& whole,
                                         bool train);

// Parameters on one rank of pipeline stage `stage`: {dense part, experts}.
struct StageParameters {
  double dense = 0, experts = 0;
};
StageParameters stage_parameters(const Architecture& model, const Parallel& parallel, int stage);

// The worst rank over pipeline stages and ranks of the dispatch group, when every MoE layer behaves like
// `program`. 1F1B: stage s keeps min(pp - s, microbatches) microbatches of activations. `dense_saved` as
// dense_saved_bytes().
MemoryForecast forecast_memory(const Architecture& model, const Parallel& parallel, const Program& program,
                               std::int64_t dense_saved, double limit_bytes, const MemoryPlan& plan = {});

}  // namespace moesim::models
