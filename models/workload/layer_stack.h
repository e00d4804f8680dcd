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
  enum class Mixer : std::uint8_t { kNone, kAttention, kWindowed, kMamba, kLinear };
  enum class Ffn : std::uint8_t { kNone, kDense, kMoe };
  Mixer mixer = Mixer::kAttention;
  Ffn ffn = Ffn::kDense;
  bool mtp =
      false;  // a multi-token-prediction layer: joins two streams with a 2H -> H product, own head pass

  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

// Whether the mixer is attention with a softmax, whose sizes attention_of() gives.
inline bool is_attention(LayerKind::Mixer mixer) {
  return mixer == LayerKind::Mixer::kAttention || mixer == LayerKind::Mixer::kWindowed;
}
inline const Attention& attention_of(const Architecture& model, LayerKind::Mixer mixer) {
  return mixer == LayerKind::Mixer::kWindowed ? model.windowed_attention() : model.attention;
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
// the ends. Throws InputError for more chunks than layers.
std::vector<Chunk> cut_into_chunks(const Architecture& model, const Parallel& parallel,
                                   std::span<const double> weight, double embedding, double head);
// Whether no weight changes the cut.
bool is_cut_evenly(const Architecture& model, const Parallel& parallel);

// Keys that a causal query sees on average; at most the window, or those of its own chunk.
double mean_keys(std::int64_t seq, std::int64_t window, bool chunked = false);

}  // namespace moesim::models
