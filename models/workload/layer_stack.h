// A model as the sequence of blocks that a pipeline cuts into chunks: which mixer and which FFN each layer
// has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/parallel.h"

namespace moesim::models {

struct LayerKind {
  // kShared: sparse attention with the choice of an earlier layer's indexer. kSelected, kCompressed:
  // attention over compressed keys, of an indexer's choice or all of them.
  enum class Mixer : std::uint8_t {
    kNone,
    kAttention,
    kWindowed,
    kMamba,
    kLinear,
    kShared,
    kSelected,
    kCompressed,
    kConvolution
  };
  enum class Ffn : std::uint8_t { kNone, kDense, kMoe };
  Mixer mixer = Mixer::kAttention;
  Ffn ffn = Ffn::kDense;
  bool mtp =
      false;  // a multi-token-prediction layer: joins two streams with a 2H -> H product, own head pass
  std::int64_t dense_ffn = 0;  // inner size of its dense FFN where the model's differ; 0: as the model's

  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

// Whether the mixer is attention with a softmax, whose sizes attention_of() gives.
inline bool is_attention(LayerKind::Mixer mixer) {
  using enum LayerKind::Mixer;
  return mixer == kAttention || mixer == kWindowed || mixer == kShared || mixer == kSelected ||
         mixer == kCompressed;
}
inline std::int64_t dense_ffn_of(const Architecture& model, const LayerKind& kind) {
  return kind.dense_ffn > 0 ? kind.dense_ffn : model.dense_ffn;
}
inline const Attention& attention_of(const Architecture& model, LayerKind::Mixer mixer) {
  return mixer == LayerKind::Mixer::kWindowed ? model.windowed_attention() : model.attention;
}
// Blocks of a layer: its mixer and its FFN.
inline int blocks_of(const LayerKind& kind) {
  return (kind.mixer != LayerKind::Mixer::kNone) + (kind.ffn != LayerKind::Ffn::kNone);
}
// Elements of all weights of a mixer, without the layer's norm.
std::int64_t mixer_parameters(const Architecture& model, LayerKind::Mixer mixer);

// All layers in order, MTP layers last.
std::vector<LayerKind> layer_stack(const Architecture& model);

// What one pipeline chunk (a virtual stage) holds.
struct Chunk {
  std::size_t first = 0;  // place of its first layer in the stack
  std::vector<LayerKind> layers;
  bool embedding = false;
  bool head = false;
};

// The stack cut into pp * vpp chunks, chunk c on stage c mod pp. Where layers divide evenly and there are no
// MTP layers, evenly (Megatron's default, and its only way for hybrid models, whose MTP layers stand last);
// otherwise so that the heaviest chunk is as light as possible (what a --pipeline-model-parallel-layout is
// written for), with `weight` the relative cost of each layer of the stack, `embedding` and `head` that of
// the ends. A layout is written once, not for every machine, so weights should not depend on one. Throws
// InputError for more chunks than layers.
std::vector<Chunk> cut_into_chunks(const Architecture& model, const Parallel& parallel,
                                   std::span<const double> weight, double embedding, double head);

// Keys that a causal query sees on average; at most the window, or those of its own chunk.
double mean_keys(std::int64_t seq, std::int64_t window, bool chunked = false);

}  // namespace moesim::models
