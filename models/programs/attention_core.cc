#include "models/programs/attention_core.h"

#include <algorithm>
#include <cmath>

#include "models/workload/mixers.h"
#include "models/workload/parallel.h"

namespace moesim::models {

namespace {

bool is_compressed(LayerKind::Mixer mixer) {
  return mixer == LayerKind::Mixer::kSelected || mixer == LayerKind::Mixer::kCompressed;
}
// Returns whether the core uses an indexer's choice of tokens.
bool is_sparse(const Architecture& model, LayerKind::Mixer mixer) {
  return (mixer == LayerKind::Mixer::kAttention || mixer == LayerKind::Mixer::kShared) &&
         model.attention.index_topk > 0;
}

// Returns the window in which a query has so many keys on average (mean_keys()); 0: all.
std::int64_t window_of(std::int64_t seq, double keys) {
  const auto s = static_cast<double>(seq);
  const double open = 1 - 2 * keys / s;
  if (open <= 0) return 0;
  return std::max<std::int64_t>(1, std::llround(s * (1 - std::sqrt(open))));
}

}  // namespace

double keys_of(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq) {
  const Attention& a = model.attention;
  if (mixer == LayerKind::Mixer::kWindowed) return mean_keys(seq, a.window, a.chunked);
  if (is_compressed(mixer)) return mean_keys(seq, a.window) + compressed_keys(model, mixer, seq);
  return mean_keys(seq, is_sparse(model, mixer) ? a.index_topk : 0);
}

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
  if (is_compressed(mixer)) core.window = window_of(seq, keys_of(model, mixer, seq));
  if (!is_sparse(model, mixer) || t.index_topk >= seq) return core;
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

double index_keys(const Attention& t, std::int64_t seq, bool all) {
  const std::int64_t of = t.scored_tokens();
  // Compressed keys are chosen one by one, pooled ones by their tokens.
  const std::int64_t chosen = t.compress > 0 ? t.index_topk : std::max<std::int64_t>(1, t.index_topk / of);
  return mean_keys(std::max<std::int64_t>(1, seq / of), all ? 0 : chosen);
}

AttentionCore index_core(const Architecture& model, std::int64_t seq, bool forward) {
  const Attention& t = model.attention;
  AttentionCore core;
  core.seq = seq;
  core.heads = t.index_heads;
  core.kv_heads = 1;
  core.score_dim = t.index_dim;
  core.value_dim = 0;
  const double keys = index_keys(t, seq, forward);
  core.window = t.scored_tokens() > 1 ? window_of(seq, keys) : forward ? 0 : t.index_topk;
  return core;
}

}  // namespace moesim::models
