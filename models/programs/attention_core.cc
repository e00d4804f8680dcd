#include "models/programs/attention_core.h"

#include <algorithm>

#include "models/workload/parallel.h"

namespace moesim::models {

AttentionCore attention_core(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq,
                             std::int64_t tp) {
  const Attention& t = attention_of(model, mixer);
  const bool latent = t.kind == Attention::Kind::kLatent;
  AttentionCore core;
  core.seq = seq;
  core.heads = rank_share(t.heads, tp);
  core.kv_heads = latent ? core.heads : rank_share(t.kv_heads, tp);
  core.score_dim = t.score_dim();
  core.value_dim = t.output_dim();
  if (mixer == LayerKind::Mixer::kWindowed) {
    core.window = model.attention.window;
    core.chunked = model.attention.chunked;
  }
  if (!has_indexer(model, mixer) || t.index_topk >= seq) return core;
  AttentionCore gathered = core;
  gathered.window = t.index_topk;  // all earlier tokens until there are more: as many keys as in a window
  if (latent) {
    gathered.gathered = true;
    gathered.kv_heads = 1;
    gathered.score_dim = t.kv_rank + t.rope_dim;
    gathered.value_dim = t.kv_rank;
  }
  const auto pair = [](const AttentionCore& c) {
    return mean_keys(c.seq, c.window) * static_cast<double>(c.score_dim + c.value_dim);
  };
  return pair(gathered) < pair(core) ? gathered : core;
}

AttentionCore index_core(const Architecture& model, std::int64_t seq, bool forward) {
  const Attention& t = model.attention;
  AttentionCore core;
  core.seq = seq;
  core.heads = t.index_heads;
  core.kv_heads = 1;
  core.score_dim = t.index_dim;
  core.value_dim = 0;
  core.window = forward ? 0 : t.index_topk;
  return core;
}

}  // namespace moesim::models
