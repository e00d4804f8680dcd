// How a layer mixes tokens beside plain attention: mixers with a state instead of keys and values (state-space
// models, linear attention, short convolutions), and attention over compressed keys. One description of
// weights, work and saved tensors serves counts, programs, FLOPs and memory. Worked examples: docs/spec.md 6.4.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace moesim::models
