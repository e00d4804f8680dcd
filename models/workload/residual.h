// How blocks read what earlier ones wrote: one stream, several (hyper-connections), or the sums of earlier
// groups of layers. One description of the weights and the traffic, for counts, programs, FLOPs and memory.
#pragma once

#include <cstdint>

#include "models/workload/architecture.h"

namespace moesim::models {

// Of one block (a mixer or an FFN), in columns of a token's row.
struct ResidualWork {
  std::int64_t mixed = 0,
               mixing = 0;  // a product [tokens, mixed] x [mixed, mixing] gives the weights; 0: none
  std::int64_t read_before = 0, written_before = 0;  // 0: the block reads the stream itself
  std::int64_t read_after = 0, written_after = 0;
  std::int64_t kept = 0;  // beside the row that the block's norm reads, until its backward
};

// Hyper-connections of n streams (arXiv 2409.19606; manifold-constrained, arXiv 2512.24880): 2n + n^2 weights
// of a token come from a product with all its streams; the block's row is their weighted sum, and every
// stream becomes a weighted sum of all of them and of the block's output. Fused as in section 4.3 there: the
// streams are read for the weights, for the row and for the update, the row and the streams are written.
// Attention over groups of layers (Kimi-K3, arXiv 2607.24653, section 2.2): the row is a softmax-weighted sum
// of the embedding, the sums of the groups so far and the sum of the present one, with a norm and a query of
// the block's own; in the mean over the layers half the groups are there. Example of n = 4 and H = 4096:
// 16384 x 24 weights and 27 more a block; 12 rows read before and after, 5 written.
ResidualWork residual_work(const Architecture& model);

// Elements of the weights of a block, and of what joins the streams before the head.
std::int64_t residual_parameters(const Architecture& model);
std::int64_t residual_head_parameters(const Architecture& model);

// Rows of a token that go from layer to layer.
inline std::int64_t residual_streams(const Architecture& model) { return model.residual.streams; }

}  // namespace moesim::models
