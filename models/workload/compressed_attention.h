// Attention over a window and keys that each stand for several tokens (DeepSeek-V4, its inference/model.py
// and technical report, section 2.3).
#pragma once

#include <cstdint>
#include <vector>

#include "models/workload/layer_stack.h"

namespace moesim::models {

// Makes one key of `ratio` tokens: a softmax over them, with a learned bias for each place, weighs what one
// product gives by what another gives. Where an indexer chooses, the tokens of two neighbours overlap: twice
// the columns.
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

// Those of a layer: of the keys, which are the values, and of the indexer's keys.
std::vector<Compressor> compressors_of(const Architecture& model, LayerKind::Mixer mixer);

// Compressed keys that a query meets in the mean: of those before it all, or the indexer's choice.
double compressed_keys(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq);

}  // namespace moesim::models
