// Shared parts of MegaBlocks' MoE and dMoE (docs/spec.md 2.12): expert and hidden sharding, the exchange, its
// syncs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

// Options of all MegaBlocks dispatchers.
struct MegablocksOptions {
  explicit MegablocksOptions(DispatcherOptions& options);
  bool memory_optimized = false;  // saves only the input and the first product (not gated)
  bool remat_act_fn = true;       // with memory_optimized: the activation is computed again in backward
  bool z_loss = false;            // router logits are saved for their own loss
  double jitter_eps = 0;          // the router's input is multiplied by noise around 1
  bool uniform = false;           // slot f of a rank goes to expert f mod E whatever the router returns
  double normalize = 0;           // the chosen weights are divided by their norm of this order; 0: not
  bool z_loss_fp32 = false, balance_loss_fp32 = false;  // what the losses are computed from is cast first
  bool bias = false;                                    // a vector is added to the layer's output
  bool shared_expert_sum = false;                       // the shared expert counts as one of topk + 1

  std::optional<std::string> illegal(const MoeLayer& layer) const;
};

// Row counts and shards of a group of W_e ranks: rank j hosts expert block j mod esd, hidden slice j div esd.
struct MegablocksFigures {
  MegablocksFigures(const MoeLayer& layer, const MegablocksOptions& options);

  int W, esd, hsd, E, E_pr, K;
  std::int64_t H, w, b, b_p, F_pr;
  bool gated;
  std::vector<std::int64_t> tokens, sent, computed;  // sent: rows before the repetition for hidden slices
  std::vector<std::int64_t> experts;                 // [W][E_pr]
  std::vector<std::int64_t> splits;                  // [W][W]
};

// Processing of the received rows in the compute step.
struct MegablocksCompute {
  std::vector<std::int64_t> rows;  // M_e, [W][E_pr]
  GemmBackend backend = GemmBackend::kGrouped;
  bool sync_capacity = false;  // the host reads back the largest count (capacity 0)
  bool sync_counts = false;    // without expert parallelism: products that need their counts on the host
  bool topology = false;       // block topology is built, from bins padded to whole blocks
  std::int64_t block = 128;
  std::int64_t dropped = 0;
};

Program megablocks_program(const MoeLayer& layer, const MegablocksOptions& options,
                           const MegablocksFigures& sizes, const MegablocksCompute& compute);

}  // namespace moesim::models
