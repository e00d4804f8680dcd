// What the core of attention and the indexer in front of a sparse core compute, of a layer's kind.
#pragma once

#include <cstdint>

#include "models/programs/program.h"
#include "models/workload/layer_stack.h"

namespace moesim::models {

// Heads of one rank of `tp` and the keys that a query of a sequence of `seq` tokens meets; queries, cp and
// fp8 are the caller's. Sparse latent attention takes the cheaper of two ways: all keys with a mask, heads by
// heads, or its best keys gathered as the latent vectors that all heads share (DeepSeek-V3.2's MQA mode,
// which computes with kv_rank columns instead of the heads' own; arXiv 2512.02556, section 2.1).
AttentionCore attention_core(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq,
                             std::int64_t tp);

// Whether that layer's kind scores all tokens with an indexer first.
inline bool has_indexer(const Architecture& model, LayerKind::Mixer mixer) {
  return (mixer == LayerKind::Mixer::kAttention && model.attention.index_topk > 0) ||
         mixer == LayerKind::Mixer::kSelected;
}
// Keys that a query meets in the mean.
double keys_of(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq);
// The indexer's scores: all earlier tokens, or their compressed keys, forward; backward, which learns the
// core's weights, the tokens that the core took. All heads on every rank: the scores of a pair are a sum over
// them.
AttentionCore index_core(const Architecture& model, std::int64_t seq, bool forward);

}  // namespace moesim::models
