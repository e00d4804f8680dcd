// A model as the sequence of layers that a pipeline cuts into chunks, each with its mixer and FFN.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/parallel.h"

namespace moesim::models {

struct LayerKind {
  // kShared: sparse attention that reuses the choice of an earlier layer's indexer. kSelected, kCompressed:
  // attention over compressed keys, chosen by an indexer or all of them. kFull: attention over all tokens in a
  // model whose other layers are sparse.
  enum class Mixer : std::uint8_t {
    kNone,
    kAttention,
    kWindowed,
    kMamba,
    kLinear,
    kShared,
    kSelected,
    kCompressed,
    kConvolution,
    kFull
  };
  enum class Ffn : std::uint8_t { kNone, kDense, kMoe };
  Mixer mixer = Mixer::kAttention;
  Ffn ffn = Ffn::kDense;
  bool mtp = false;  // multi-token-prediction layer: joins two streams by a 2H -> H product, own head pass
  // inner size of its dense FFN where they differ within the model; 0: the model's
  std::int64_t dense_ffn = 0;

  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

// Whether the mixer is attention with a softmax; attention_of() returns its sizes.
inline bool is_attention(LayerKind::Mixer mixer) {
  using enum LayerKind::Mixer;
  return mixer == kAttention || mixer == kWindowed || mixer == kShared || mixer == kSelected ||
         mixer == kCompressed || mixer == kFull;
}
inline std::int64_t dense_ffn_of(const Architecture& model, const LayerKind& kind) {
  return kind.dense_ffn > 0 ? kind.dense_ffn : model.dense_ffn;
}
inline const Attention& attention_of(const Architecture& model, LayerKind::Mixer mixer) {
  return mixer == LayerKind::Mixer::kWindowed ? model.windowed_attention() : model.attention;
}
// Returns the blocks of a layer: mixer and FFN.
inline int blocks_of(const LayerKind& kind) {
  return (kind.mixer != LayerKind::Mixer::kNone) + (kind.ffn != LayerKind::Ffn::kNone);
}
// Returns the elements of all weights of a mixer, without the layer's norm.
std::int64_t mixer_parameters(const Architecture& model, LayerKind::Mixer mixer);

// Returns all layers in order, MTP layers last.
std::vector<LayerKind> layer_stack(const Architecture& model);

// A pipeline chunk (a virtual stage).
struct Chunk {
  std::size_t first = 0;  // index of its first layer in the stack
  std::vector<LayerKind> layers;
  bool embedding = false;
  bool head = false;
};

// Cuts the stack into pp * vpp chunks, chunk c on stage c mod pp. Where layers divide evenly and there are no
// MTP layers, evenly (Megatron's default, and its only way for hybrid models, whose MTP layers stand last);
// otherwise so that the heaviest chunk is as light as possible (the purpose of
// --pipeline-model-parallel-layout). `weight`: relative cost of each layer of the stack, `embedding` and
// `head`: of the ends; an even cut asks for none. Throws InputError for more chunks than layers.
std::vector<Chunk> cut_into_chunks(const Architecture& model, const Parallel& parallel,
                                   std::span<const double> weight, double embedding, double head);
// Returns whether the cut is independent of weights.
bool is_cut_evenly(const Architecture& model, const Parallel& parallel);

// Returns the mean number of keys of a causal query, limited to the window or to its own chunk.
double mean_keys(std::int64_t seq, std::int64_t window, bool chunked = false);

}  // namespace moesim::models
