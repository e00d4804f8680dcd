// How a layer mixes tokens beside plain attention: mixers with a state instead of keys and values (state-space
// models, linear attention, short convolutions), and attention over compressed keys; and its residual streams.
// One description of weights, work and saved tensors serves counts, programs, FLOPs and memory. Worked
// examples: docs/spec.md 6.4.
#pragma once

#include <cstdint>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"

namespace moesim::models {

// Sizes for all heads of the model; a tensor-parallel rank has its share of all but `narrow`.
struct StateMixer {
  struct Product {
    std::int64_t n = 0, k = 0;
  };

  std::int64_t input = 0;       // columns of the products that read the layer's rows
  std::vector<Product> narrow;  // products that read some of these columns: low-rank gates and steps
  std::int64_t convolved = 0;   // columns of the short convolution
  std::int64_t taps = 0;        // weights per convolved column, bias included
  std::int64_t inner = 0;       // columns that the output projection reads
  std::int64_t scales = 0;      // weights outside of products: decays, biases, norms
  std::int64_t state = 0;       // elements of the states of all heads

  // Per token; 0: no scan. The chunked scan of its kernels, and the bare recurrence.
  std::int64_t scan_flops = 0;
  std::int64_t recurrence_flops = 0;
  std::int64_t scanned = 0;  // columns that the scan reads
  // Columns of bf16 that the scan writes and reads again internally: the states of all chunks, products.
  std::int64_t between = 0;
  int launches = 1, backward_launches = 1;  // kernels of the scan
  bool measured = false;                    // its scan kernels have published measurements (Mamba-2's)
  // Columns kept for backward besides the outputs of the input products and the scan.
  std::int64_t kept = 0;

  std::int64_t parameters(std::int64_t hidden) const;
};

// `mixer` is kMamba, kLinear or kConvolution.
StateMixer state_mixer(const Architecture& model, LayerKind::Mixer mixer);

// Attention over a window and compressed keys, each of several tokens (DeepSeek-V4, its inference/model.py
// and technical report, section 2.3).
//
// Makes one key of `ratio` tokens: the output of one product, weighted by a softmax over the tokens of
// another product's output plus a learned bias per position. Where an indexer chooses, the tokens of two
// neighbours overlap: twice the columns.
struct Compressor {
  std::int64_t ratio = 1;
  std::int64_t columns = 0;  // of each of the two products
  std::int64_t width = 0;    // of a compressed key

  // Two products, a bias for each of the tokens, a norm. Example of 4096 columns, ratio 4, width 512: 2 x
  // 4096 x 1024 + 4 x 1024 + 512 = 8,393,216.
  std::int64_t parameters(std::int64_t hidden) const {
    return 2 * hidden * columns + ratio * columns + width;
  }
};

// Returns the compressors of a layer: for its keys, which are also its values, and for the indexer's keys.
std::vector<Compressor> compressors_of(const Architecture& model, LayerKind::Mixer mixer);

// Returns the mean number of compressed keys per query: all before it, or the indexer's choice.
double compressed_keys(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq);

// Residual streams: one stream, several (hyper-connections), or sums of earlier groups of layers. One
// description of their weights and traffic serves counts, programs, FLOPs and memory.

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
