// The part of an MoE layer that no dispatcher changes: norms, attention, router, and the shared expert where
// it does not overlap with the dispatch. The same on every rank of the dispatch group.
#pragma once

#include "models/dispatchers/dispatcher.h"
#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/parallel.h"

namespace moesim::models {

struct DenseLayer {
  const Architecture* model = nullptr;
  Parallel parallel;        // tp, cp, ep, etp, seq are used
  std::int64_t tokens = 0;  // T at MoE entry, the most of any rank
  std::int64_t topk = 0;
  DType activation = DType::kBf16;
  DType router = DType::kFp32;
  bool shared_expert = true;  // false: the dispatcher's program runs it
  bool train = true;
};

// Forward: norm, [AG over tp,] projections, attention, output projection, [RS over tp,] residual, norm,
// router, shared expert. Backward: the mirror, with dgrad and wgrad of every product. Its collectives are in
// group kDense.
Program dense_program(const DenseLayer& layer);

// Bytes that this part keeps from forward to backward on one rank (selective recompute of the attention core:
// scores are never kept, as flash attention does).
std::int64_t dense_saved_bytes(const DenseLayer& layer);

}  // namespace moesim::models
