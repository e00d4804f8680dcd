#include "models/programs/projections.h"

#include "models/programs/attention_core.h"
#include "models/workload/compressed_attention.h"
#include "models/workload/parallel.h"

namespace moesim::models {

Projections projections_of(const Architecture& model, LayerKind::Mixer mixer, std::int64_t tp) {
  const Attention& t = attention_of(model, mixer);
  const std::int64_t hidden = model.hidden;
  const bool latent = t.kind == Attention::Kind::kLatent;
  Projections p;
  p.heads = rank_share(t.heads, tp);
  p.kv_heads = latent ? p.heads : rank_share(t.kv_heads, tp);
  const std::int64_t gate = p.heads * t.gate_dim;
  if (latent) {
    if (t.q_rank > 0) {
      p.gathered.push_back({"query down", t.q_rank, hidden});
      p.latent.push_back({"query up", p.heads * t.score_dim(), t.q_rank});
    } else {
      p.gathered.push_back({"query", p.heads * t.score_dim(), hidden});
    }
    p.gathered.push_back({"key/value down", t.kv_rank + t.rope_dim, hidden});
    if (gate > 0) p.gathered.push_back({"output gate", gate, hidden});
    p.latent.push_back({"key/value up", p.heads * (t.nope_dim + t.value_dim), t.kv_rank});
    p.latent_columns = t.q_rank + t.kv_rank;
  } else if (t.q_rank > 0) {
    const std::int64_t queries = p.heads * t.head_dim;
    p.gathered.push_back({"query down", t.q_rank, hidden});
    p.gathered.push_back({"key, value", t.grouped_columns(p.heads, p.kv_heads) - queries + gate, hidden});
    p.latent.push_back({"query up", queries, t.q_rank});
    p.latent_columns = t.q_rank + p.kv_heads * t.head_dim;
  } else {
    p.gathered.push_back({"query, key, value", t.grouped_columns(p.heads, p.kv_heads) + gate, hidden});
  }
  if (has_indexer(model, mixer)) {
    p.index.push_back({"indexer queries", t.index_heads * t.index_dim, t.q_rank > 0 ? t.q_rank : hidden});
    // Compressed keys come from a separate compressor.
    const std::int64_t key = mixer == LayerKind::Mixer::kSelected ? 0 : t.index_dim;
    p.index.push_back({"indexer key and weights", key + t.index_heads, hidden, true});
  }
  // Compressors are whole on every rank.
  for (const Compressor& c : compressors_of(model, mixer))
    p.gathered.push_back({"compressor", 2 * c.columns, hidden, true});
  p.out = {"attention projection", hidden, p.heads * t.output_dim()};
  if (t.output_groups > 0) {
    p.out_down = {"output down", t.output_rank, p.heads * t.output_dim()};
    p.out.k = rank_share(t.output_groups, tp) * t.output_rank;
  }
  return p;
}

}  // namespace moesim::models
