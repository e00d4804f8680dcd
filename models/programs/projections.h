// Products of attention with weights on one rank.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/layer_stack.h"
#include "models/workload/mixers.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

struct Projections {
  enum class Part : std::uint8_t {
    kOther,  // router, latent widths, joins and mixing of streams
    kMixer,
    kSmall,  // of a mixer: indexers, compressors, gates of low rank
    kFfn,    // dense, or a shared expert's
  };
  // [tokens, k] x [k, n] on this rank.
  struct Weight {
    std::string_view name;
    std::int64_t n = 0, k = 0;
    bool plain = false;  // stays in bf16 whatever the type of the layer's products
    Part part = Part::kOther;
    std::int64_t keys = 0, values = 0;  // columns of n that are keys' and values' of a joined product
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

// Return the products of a mixer that keeps a state: input, low-rank gates and steps, output.
Projections::Weight state_in(const Architecture& model, const StateMixer& mixer, std::int64_t tp);
Projections::Weight state_narrow(const StateMixer::Product& product, std::int64_t tp);
Projections::Weight state_out(const Architecture& model, const StateMixer& mixer, std::int64_t tp);
// Return the products of a dense FFN or a shared expert with `inner` columns on this rank.
Projections::Weight ffn_up(const Architecture& model, std::int64_t inner);
Projections::Weight ffn_down(const Architecture& model, std::int64_t inner);
Projections::Weight router_weight(const Architecture& model);
Projections::Weight to_latent(const Architecture& model);
Projections::Weight from_latent(const Architecture& model);
Projections::Weight mtp_join(const Architecture& model);
Projections::Weight residual_mixing(const Architecture& model);

// Returns all products of a layer with weights, in order.
std::vector<Projections::Weight> layer_weights(const Architecture& model, const LayerKind& kind,
                                               std::int64_t tp);

// The products of layer_weights() whose outputs torchtitan's selective checkpointing by operation keeps, and
// those that it computes again: it keeps every second one in the order of its modules, where gate and up are
// two and queries, keys and values three, and never the router's.
struct EverySecond {
  std::vector<Projections::Weight> kept, again;
};
EverySecond every_second(const Architecture& model, const LayerKind& kind, std::int64_t tp);

// Whether a weight has a low-rank adapter, and the elements of it on one rank: of `rank` rows and columns
// along both sides of the rank's own part of the weight. The factor along a side that tensor parallelism does
// not divide is whole on every rank, so that adapters need no collective of their own.
inline bool adapted(const Lora& lora, const Projections::Weight& weight) {
  using enum Projections::Part;
  return lora.rank > 0 &&
         (weight.part == kMixer || (weight.part == kFfn && lora.modules != Lora::Modules::kAttention));
}
inline std::int64_t adapter_elements(const Lora& lora, const Projections::Weight& weight) {
  return adapted(lora, weight) ? lora.rank * (weight.n + weight.k) : 0;
}
// The elements of both adapters of a routed expert, beside its joined up projections and its down projection.
// Example of 64 columns, 32 inner ones, a gate and rank 8: 8 x (64 + 64) + 8 x (32 + 64) = 1792.
inline std::int64_t expert_adapter_elements(const Lora& lora, const Architecture& model, std::int64_t etp) {
  if (lora.rank == 0 || lora.modules != Lora::Modules::kExperts) return 0;
  const std::int64_t inner = rank_share(model.expert_ffn, etp);
  return lora.rank * (((model.gated ? 2 : 1) + 1) * inner + 2 * model.expert_width());
}

// Work of the attention core, and of the indexer of a sparse core, for a kind of layer.

// Returns the heads of one rank of `tp` and the keys per query for sequences of `seq` tokens; the caller sets
// queries, cp and fp8. Sparse latent attention takes the cheaper of two ways: all keys with a mask, per head,
// or the chosen keys gathered as latent vectors that all heads share (DeepSeek-V3.2's MQA mode, which
// computes with kv_rank columns instead of the heads' own; arXiv 2512.02556, section 2.1).
AttentionCore attention_core(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq,
                             std::int64_t tp);

// Whether a layer of this kind scores all tokens with an indexer first.
inline bool has_indexer(const Architecture& model, LayerKind::Mixer mixer) {
  return (mixer == LayerKind::Mixer::kAttention && model.attention.index_topk > 0) ||
         mixer == LayerKind::Mixer::kSelected;
}
// Whether the core computes with an indexer's choice of tokens, which sets its window.
inline bool takes_chosen(const Architecture& model, LayerKind::Mixer mixer, const AttentionCore& core) {
  return (mixer == LayerKind::Mixer::kAttention || mixer == LayerKind::Mixer::kShared) &&
         model.attention.index_topk > 0 && core.window > 0;
}
// Returns the mean number of keys per query.
double keys_of(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq);
// Returns the mean number of keys per query that the indexer scores, or of those that it chose.
double index_keys(const Attention& attention, std::int64_t seq, bool all);
// Returns the indexer's scores: forward over all earlier tokens or their compressed keys; backward, which
// learns the core's weights, over the tokens that the core took. Every rank computes all heads, since the
// score of a pair is a sum over them.
AttentionCore index_core(const Architecture& model, std::int64_t seq, bool forward);

}  // namespace moesim::models
