// Mixers with a state instead of keys and values: state-space models, linear attention, short convolutions.
// One description of their weights, work and saved tensors serves counts, programs, FLOPs and memory.
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

}  // namespace moesim::models
