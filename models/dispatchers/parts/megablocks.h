// What MegaBlocks' MoE and dMoE share (docs/spec.md 2.12): expert and hidden sharding, the exchange, its
// syncs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

// Options of all three.
struct MegablocksOptions {
  explicit MegablocksOptions(DispatcherOptions& options);
  bool memory_optimized = false;  // saves only the input and the first product (not gated)

  std::optional<std::string> illegal(const MoeLayer& layer) const;
};

// Rows and shards of a group of W_e ranks: rank j hosts expert block j mod esd, hidden slice j div esd.
struct MegablocksFigures {
  explicit MegablocksFigures(const MoeLayer& layer);

  int W, esd, hsd, E, E_pr, K;
  std::int64_t H, w, b, b_p, F_pr;
  bool gated;
  std::vector<std::int64_t> tokens, sent, computed;  // sent: rows before the repetition for hidden slices
  std::vector<std::int64_t> experts;                 // [W][E_pr]
  std::vector<std::int64_t> splits;                  // [W][W]
};

// How the compute step treats the received rows.
struct MegablocksCompute {
  std::vector<std::int64_t> rows;  // M_e, [W][E_pr]
  GemmBackend backend = GemmBackend::kGrouped;
  bool sync_capacity = false;  // the largest count is read back (capacity factor 0)
  bool sync_padded = false;    // the padded total is read back
  bool topology = false;       // block topology is built
  std::int64_t block = 128;
  std::int64_t dropped = 0;
};

Program megablocks_program(const MoeLayer& layer, const MegablocksOptions& options,
                           const MegablocksFigures& sizes, const MegablocksCompute& compute);

}  // namespace moesim::models
