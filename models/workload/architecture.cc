#include "models/workload/architecture.h"

#include <algorithm>

namespace moesim::models {

std::int64_t Attention::parameters(std::int64_t hidden) const {
  if (kind == Kind::kLatent) {
    const std::int64_t queries =
        q_rank > 0 ? hidden * q_rank + q_rank + q_rank * heads * score_dim() : hidden * heads * score_dim();
    return queries + hidden * (kv_rank + rope_dim) + kv_rank + kv_rank * heads * (nope_dim + value_dim) +
           heads * value_dim * hidden;
  }
  const std::int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  return hidden * (q + 2 * kv) + q * hidden + (qkv_bias ? q + 2 * kv : 0) + (output_bias ? hidden : 0) +
         (qk_norm ? 2 * head_dim : 0) + (sinks ? heads : 0);
}

std::int64_t Mamba::parameters(std::int64_t hidden) const {
  if (heads == 0) return 0;
  const std::int64_t convolved = inner() + 2 * groups * state;
  return hidden * input_columns() + convolved * (conv + 1) + 3 * heads + inner() + inner() * hidden;
}

bool Architecture::is_moe_layer(std::int64_t layer) const {
  if (!pattern.empty()) return pattern[static_cast<std::size_t>(layer)] == 'E';
  return experts > 0 && layer >= dense_layers && (layer - dense_layers) % moe_every == moe_every - 1;
}

std::int64_t Architecture::moe_layers() const {
  if (!pattern.empty()) return std::count(pattern.begin(), pattern.end(), 'E');
  return experts == 0 || layers <= dense_layers ? 0 : (layers - dense_layers) / moe_every;
}

std::int64_t Architecture::parameters_per_expert() const {
  const std::int64_t up = (gated ? 2 : 1) * expert_ffn;
  return expert_width() * (up + expert_ffn) + (expert_bias ? up + expert_width() : 0);
}

namespace {

std::int64_t count_parameters(const Architecture& a, std::int64_t routed_experts) {
  const std::int64_t up = a.gated ? 3 : 2;
  const std::int64_t moe = a.moe_layers(), dense = a.layers - moe;
  const std::int64_t embeddings = (a.tied_embeddings ? 1 : 2) * a.vocabulary * a.hidden;
  const std::int64_t every_layer = a.attention.parameters(a.hidden) + 2 * a.norm_parameters();
  const std::int64_t router = a.hidden * a.experts + (a.router_bias ? a.experts : 0);
  const std::int64_t shared =
      up * a.hidden * a.shared_ffn + (a.shared_gate ? a.hidden : 0) + 2 * a.latent * a.hidden;
  if (!a.pattern.empty()) {
    const auto count = [&](char c) { return std::count(a.pattern.begin(), a.pattern.end(), c); };
    return embeddings + a.norm_parameters() + a.layers * a.norm_parameters() +
           count('M') * a.mamba.parameters(a.hidden) + count('*') * a.attention.parameters(a.hidden) +
           count('-') * up * a.hidden * a.dense_ffn +
           moe * (router + shared + routed_experts * a.parameters_per_expert());
  }
  return embeddings + a.norm_parameters() + a.layers * every_layer + dense * up * a.hidden * a.dense_ffn +
         moe * (router + shared + routed_experts * a.parameters_per_expert());
}

}  // namespace

std::int64_t Architecture::parameters() const { return count_parameters(*this, experts); }

std::int64_t Architecture::active_parameters() const {
  const std::int64_t table = tied_embeddings || embedding_active ? 0 : vocabulary * hidden;
  return count_parameters(*this, topk) - table;
}

}  // namespace moesim::models
