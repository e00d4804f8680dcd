// Work of the attention core, and of the indexer of a sparse core, for a kind of layer.
#pragma once

#include <cstdint>

#include "models/programs/program.h"
#include "models/workload/layer_stack.h"

namespace moesim::models {

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
