#include "models/workload/architecture.h"

#include <algorithm>

#include "models/workload/layer_stack.h"
#include "models/workload/residual.h"

namespace moesim::models {

std::int64_t Attention::parameters(std::int64_t hidden) const {
  const std::int64_t gate = hidden * heads * gate_dim;
  if (kind == Kind::kLatent) {
    const std::int64_t queries =
        q_rank > 0 ? hidden * q_rank + q_rank + q_rank * heads * score_dim() : hidden * heads * score_dim();
    return queries + hidden * (kv_rank + rope_dim) + kv_rank + kv_rank * heads * (nope_dim + value_dim) +
           heads * value_dim * hidden + gate;
  }
  const std::int64_t columns = grouped_columns(heads, kv_heads), queries = heads * head_dim;
  const std::int64_t input =
      q_rank > 0 ? hidden * (columns - queries + q_rank) + q_rank * queries + q_rank + kv_heads * head_dim
                 : hidden * columns;
  const std::int64_t output = output_groups > 0
                                  ? output_rank * (heads * output_dim() + output_groups * hidden)
                                  : heads * output_dim() * hidden;
  return input + output + (qkv_bias ? columns : 0) + (output_bias ? hidden : 0) +
         (qk_norm ? 2 * head_dim : 0) + (sinks ? heads : 0) + gate;
}

// Queries from the latent queries where they exist, one key for all heads with a LayerNorm, a weight per head
// (class Indexer of DeepSeek-V3.2-Exp's inference/model.py); for pooled keys also a gate per token and a bias
// per position of a block (the tensors of GLM-5.3-Flash). Example of GLM-5.3-Flash, queries of rank 1536, 32
// heads of 128 and blocks of 4: 1536 x 4096 + 4096 x (256 + 32) + 256 + 4 x 128 = 7,471,872.
std::int64_t Attention::indexer_parameters(std::int64_t hidden) const {
  return (q_rank > 0 ? q_rank : hidden) * index_heads * index_dim +
         hidden * (index_key_columns() + index_heads) + 2 * index_dim +
         (index_pooled ? index_block * index_dim : 0);
}

bool Architecture::is_moe_layer(std::int64_t layer) const {
  const auto at = static_cast<std::size_t>(layer);
  if (!pattern.empty()) return pattern[at] == 'E';
  if (!ffns.empty()) return ffns[at] == 'E';
  return experts > 0 && layer >= dense_layers && (layer - dense_layers) % moe_every == moe_every - 1;
}

std::int64_t Architecture::moe_layers() const {
  if (!pattern.empty() || !ffns.empty()) return std::ranges::count(pattern.empty() ? ffns : pattern, 'E');
  return experts == 0 || layers <= dense_layers ? 0 : (layers - dense_layers) / moe_every;
}

bool Architecture::has_dense_ffn() const {
  if (pattern.empty() && ffns.empty()) return moe_layers() < layers;
  return (pattern + ffns).find('-') != std::string::npos;
}

std::int64_t Architecture::parameters_per_expert() const {
  const std::int64_t up = (gated ? 2 : 1) * expert_ffn;
  return expert_width() * (up + expert_ffn) + (expert_bias ? up + expert_width() : 0);
}

namespace {

std::int64_t count_parameters(const Architecture& a, std::int64_t routed_experts) {
  const std::int64_t up = a.gated ? 3 : 2;
  const std::int64_t router =
      a.hidden * (a.experts + a.zero_experts) + (a.router_bias ? a.experts + a.zero_experts : 0);
  const std::int64_t shared =
      up * a.hidden * a.shared_ffn + (a.shared_gate ? a.hidden : 0) + 2 * a.latent * a.hidden;
  std::int64_t sum = (a.tied_embeddings ? 1 : 2) * a.vocabulary * a.hidden + a.norm_parameters() +
                     residual_head_parameters(a);
  for (const LayerKind& layer : layer_stack(a)) {
    if (layer.mtp) break;
    sum += blocks_of(layer) * residual_parameters(a);
    if (layer.mixer != LayerKind::Mixer::kNone) sum += a.norm_parameters() + mixer_parameters(a, layer.mixer);
    if (layer.ffn != LayerKind::Ffn::kNone) sum += a.norm_parameters();
    if (layer.ffn == LayerKind::Ffn::kDense) sum += up * a.hidden * dense_ffn_of(a, layer);
    if (layer.ffn == LayerKind::Ffn::kMoe)
      sum += router + shared + routed_experts * a.parameters_per_expert();
  }
  return sum;
}

}  // namespace

std::int64_t Architecture::parameters() const { return count_parameters(*this, experts); }

std::int64_t Architecture::active_parameters() const {
  const std::int64_t table = vocabulary * hidden;
  const std::int64_t left_out =
      tied_embeddings ? !embedding_active && !head_active : !embedding_active + !head_active;
  return count_parameters(*this, topk) - left_out * table;
}

}  // namespace moesim::models
