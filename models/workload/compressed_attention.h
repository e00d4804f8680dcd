// Attention over a window and compressed keys, each of several tokens (DeepSeek-V4, its inference/model.py
// and technical report, section 2.3).
#pragma once

#include <cstdint>
#include <vector>

#include "models/workload/layer_stack.h"

namespace moesim::models {

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
