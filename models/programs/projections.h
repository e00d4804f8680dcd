// Products of attention with weights on one rank.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/workload/layer_stack.h"

namespace moesim::models {

struct Projections {
  // [tokens, k] x [k, n] on this rank.
  struct Weight {
    std::string_view name;
    std::int64_t n = 0, k = 0;
    bool plain = false;  // stays in bf16 whatever the type of the layer's products
  };

  std::vector<Weight> gathered;  // read the layer's input
  std::vector<Weight> latent;    // read latent vectors: MLA's, or queries of low rank
  // Products of an indexer, whole on every rank. No gradient flows from them to their input (arXiv
  // 2512.02556).
  std::vector<Weight> index;
  Weight out_down;  // of a low-rank output (n > 0), its groups as one product with as many weights
  Weight out;
  std::int64_t latent_columns = 0;  // normalised latent vectors
  std::int64_t heads = 1, kv_heads = 1;
};

// `mixer` is a kind of attention.
Projections projections_of(const Architecture& model, LayerKind::Mixer mixer, std::int64_t tp);

}  // namespace moesim::models
