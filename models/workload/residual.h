// Residual streams: one stream, several (hyper-connections), or sums of earlier groups of layers. One
// description of their weights and traffic serves counts, programs, FLOPs and memory.
#pragma once

#include <cstdint>

#include "models/workload/architecture.h"

namespace moesim::models {

// Work of one block (a mixer or an FFN), in columns of a token's row.
struct ResidualWork {
  std::int64_t mixed = 0,
               // a product [tokens, mixed] x [mixed, mixing] computes the mixing weights; 0: none
      mixing = 0;
  std::int64_t read_before = 0, written_before = 0;  // 0: the block reads the stream itself
  std::int64_t read_after = 0, written_after = 0;
  std::int64_t kept = 0;  // kept until backward besides the row that the block's norm reads
};

// Hyper-connections of n streams (arXiv 2409.19606; manifold-constrained, arXiv 2512.24880): a product with
// all streams of a token gives 2n + n^2 weights; the block's input is the weighted sum of the streams, and
// every stream becomes a weighted sum of all streams and of the block's output. Fused as in section 4.3
// there: the streams are read for the weights, for the row and for the update, the row and the streams are
// written. Attention over groups of layers (Kimi-K3, arXiv 2607.24653, section 2.2): the row is a
// softmax-weighted sum of the embedding, the sums of the groups so far and the sum of the present one, with a
// norm and a query of the block's own; on average over the layers half of the groups exist. Example of n = 4
// and H = 4096: 16384 x 24 weights and 27 more per block; 12 rows read before and after, 5 written.
ResidualWork residual_work(const Architecture& model);

// Recomputed hyper-connections (arXiv 2512.24880, section 4.3.2; Megatron's --recompute-modules mhc) keep the
// outputs of blocks, and the streams before the first of so many consecutive blocks; backward computes the
// streams between them again, a group at a time. Returns the number that keeps least beside what a group
// holds then: sqrt(n L / (n + 2)) of the L blocks of a stage. Example of n = 4 and L = 86: 8.
std::int64_t recomputed_blocks(const Architecture& model, std::int64_t blocks);

// Elements of the weights of a block, and of the operation that joins the streams before the head.
std::int64_t residual_parameters(const Architecture& model);
std::int64_t residual_head_parameters(const Architecture& model);

// Rows of a token that a pipeline stage hands to the next: all streams, or the embedding, on average half of
// the groups' sums and the present one. Example of Kimi-K3, 93 layers in groups of 12: 6 rows.
std::int64_t rows_between_stages(const Architecture& model);

// Rows of a token that pass from layer to layer.
inline std::int64_t residual_streams(const Architecture& model) { return model.residual.streams; }

}  // namespace moesim::models
