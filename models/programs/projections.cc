#include "models/programs/projections.h"

#include <algorithm>
#include <cmath>

#include "models/workload/mixers.h"
#include "models/workload/parallel.h"

namespace moesim::models {

using Part = Projections::Part;
using Weight = Projections::Weight;

Projections projections_of(const Architecture& model, LayerKind::Mixer mixer, std::int64_t tp) {
  const Attention& t = attention_of(model, mixer);
  const std::int64_t hidden = model.hidden;
  const bool latent = t.kind == Attention::Kind::kLatent;
  Projections p;
  p.heads = rank_share(t.heads, tp);
  p.kv_heads = latent ? p.heads : rank_share(t.kv_heads, tp);
  const std::int64_t gate = p.heads * t.gate_dim;
  const auto gathered = [&](std::string_view name, std::int64_t columns) {
    p.gathered.push_back({name, columns, hidden, false, Part::kMixer});
  };
  if (latent) {
    if (t.q_rank > 0) {
      gathered("query down", t.q_rank);
      p.latent.push_back({"query up", p.heads * t.score_dim(), t.q_rank, false, Part::kMixer});
    } else {
      gathered("query", p.heads * t.score_dim());
    }
    gathered("key/value down", t.kv_rank + t.rope_dim);
    if (gate > 0) gathered("output gate", gate);
    p.latent.push_back(
        {"key/value up", p.heads * (t.nope_dim + t.value_dim), t.kv_rank, false, Part::kMixer});
    p.latent_columns = t.q_rank + t.kv_rank;
  } else if (t.q_rank > 0) {
    const std::int64_t queries = p.heads * t.head_dim;
    gathered("query down", t.q_rank);
    gathered("key, value", t.grouped_columns(p.heads, p.kv_heads) - queries + gate);
    p.latent.push_back({"query up", queries, t.q_rank, false, Part::kMixer});
    p.latent_columns = t.q_rank + p.kv_heads * t.head_dim;
  } else {
    gathered("query, key, value", t.grouped_columns(p.heads, p.kv_heads) + gate);
  }
  if (!latent) {
    // The last product holds keys and values beside what else is joined with them.
    p.gathered.back().keys = p.kv_heads * t.head_dim;
    p.gathered.back().values = t.grouped_columns(0, p.kv_heads) - p.kv_heads * t.head_dim;
  }
  if (has_indexer(model, mixer)) {
    p.index.push_back({"indexer queries", t.index_heads * t.index_dim, t.q_rank > 0 ? t.q_rank : hidden,
                       false, Part::kSmall});
    // Compressed keys come from a separate compressor.
    const std::int64_t key = mixer == LayerKind::Mixer::kSelected ? 0 : t.index_key_columns();
    p.index.push_back({"indexer key and weights", key + t.index_heads, hidden, true, Part::kSmall});
  }
  // Compressors are whole on every rank.
  for (const Compressor& c : compressors_of(model, mixer))
    p.gathered.push_back({"compressor", 2 * c.columns, hidden, true, Part::kSmall});
  p.out = {"attention projection", hidden, p.heads * t.output_dim(), false, Part::kMixer};
  if (t.output_groups > 0) {
    p.out_down = {"output down", t.output_rank, p.heads * t.output_dim(), false, Part::kMixer};
    p.out.k = rank_share(t.output_groups, tp) * t.output_rank;
  }
  return p;
}

Weight state_in(const Architecture& a, const StateMixer& m, std::int64_t tp) {
  return {"state-space input projection", rank_share(m.input, tp), a.hidden, false, Part::kMixer};
}

Weight state_narrow(const StateMixer::Product& p, std::int64_t tp) {
  // One side is the heads', of which a rank has its share.
  return {"state-space gates", p.n > p.k ? rank_share(p.n, tp) : p.n, p.n > p.k ? p.k : rank_share(p.k, tp),
          false, Part::kSmall};
}

Weight state_out(const Architecture& a, const StateMixer& m, std::int64_t tp) {
  return {"state-space output projection", a.hidden, rank_share(m.inner, tp), false, Part::kMixer};
}

Weight ffn_up(const Architecture& a, std::int64_t inner) {
  return {"FFN up", (a.gated ? 2 : 1) * inner, a.hidden, false, Part::kFfn};
}

Weight ffn_down(const Architecture& a, std::int64_t inner) {
  return {"FFN down", a.hidden, inner, false, Part::kFfn};
}

Weight router_weight(const Architecture& a) { return {"router", a.experts + a.zero_experts, a.hidden, true}; }
Weight to_latent(const Architecture& a) { return {"to latent", a.latent, a.hidden}; }
Weight from_latent(const Architecture& a) { return {"from latent", a.hidden, a.latent}; }
Weight mtp_join(const Architecture& a) { return {"join", a.hidden, 2 * a.hidden}; }

Weight residual_mixing(const Architecture& a) {
  const ResidualWork work = residual_work(a);
  return {"mixing weights", work.mixing, work.mixed, true};
}

std::vector<Weight> layer_weights(const Architecture& a, const LayerKind& kind, std::int64_t tp) {
  std::vector<Weight> all;
  const auto ffn = [&](std::int64_t inner) {
    all.push_back(ffn_up(a, rank_share(inner, tp)));
    all.push_back(ffn_down(a, rank_share(inner, tp)));
  };
  if (kind.mtp) all.push_back(mtp_join(a));
  if (residual_work(a).mixed > 0)
    all.insert(all.end(), static_cast<std::size_t>(blocks_of(kind)), residual_mixing(a));
  if (is_attention(kind.mixer)) {
    const Projections p = projections_of(a, kind.mixer, tp);
    for (const auto* part : {&p.gathered, &p.latent, &p.index})
      all.insert(all.end(), part->begin(), part->end());
    if (p.out_down.n > 0) all.push_back(p.out_down);
    all.push_back(p.out);
  } else if (kind.mixer != LayerKind::Mixer::kNone) {
    const StateMixer m = state_mixer(a, kind.mixer);
    all.push_back(state_in(a, m, tp));
    for (const StateMixer::Product& narrow : m.narrow) all.push_back(state_narrow(narrow, tp));
    all.push_back(state_out(a, m, tp));
  }
  if (kind.ffn == LayerKind::Ffn::kDense) ffn(dense_ffn_of(a, kind));
  if (kind.ffn == LayerKind::Ffn::kMoe) {
    all.push_back(router_weight(a));
    if (a.shared_ffn > 0) ffn(a.shared_ffn);
    if (a.latent > 0) all.push_back(to_latent(a)), all.push_back(from_latent(a));
  }
  return all;
}

EverySecond every_second(const Architecture& a, const LayerKind& kind, std::int64_t tp) {
  EverySecond products;
  std::size_t count = 0;
  const auto add = [&](const Weight& w) { (count++ % 2 == 0 ? products.kept : products.again).push_back(w); };
  for (const Weight& w : layer_weights(a, kind, tp)) {
    if (w.name == router_weight(a).name) {
      products.again.push_back(w);
    } else if (w.part == Part::kFfn && w.k == a.hidden && a.gated) {
      for (int i = 0; i < 2; ++i) add({w.name, w.n / 2, w.k, w.plain, w.part});
    } else if (w.keys > 0) {
      for (const std::int64_t n : {w.n - w.keys - w.values, w.keys, w.values})
        if (n > 0) add({w.name, n, w.k, w.plain, w.part});
    } else {
      add(w);
    }
  }
  return products;
}

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
