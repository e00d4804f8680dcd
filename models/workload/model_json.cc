#include "models/workload/model_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "models/workload/architecture.h"

namespace moesim::models {

using nlohmann::ordered_json;

namespace {

ordered_json attention_object(const Attention& t) {
  ordered_json attention{
      {"heads", t.heads}, {"qkv_bias", t.qkv_bias}, {"output_bias", t.output_bias},  {"qk_norm", t.qk_norm},
      {"sinks", t.sinks}, {"window", t.window},     {"window_every", t.window_every}};
  if (t.kind == Attention::Kind::kLatent) {
    attention["kind"] = "latent";
    attention["q_rank"] = t.q_rank;
    attention["kv_rank"] = t.kv_rank;
    attention["nope_dim"] = t.nope_dim;
    attention["rope_dim"] = t.rope_dim;
    attention["value_dim"] = t.value_dim;
  } else {
    attention["kv_heads"] = t.kv_heads;
    attention["head_dim"] = t.head_dim;
    if (t.value_dim > 0) attention["value_dim"] = t.value_dim;
    if (t.shared_values) attention["shared_values"] = true;
    if (t.q_rank > 0) attention["q_rank"] = t.q_rank;
  }
  if (t.output_groups > 0)
    attention.update({{"output_groups", t.output_groups}, {"output_rank", t.output_rank}});
  if (t.compress > 0 || t.compress_all > 0) {
    attention["compress"] = t.compress;
    attention["compress_all"] = t.compress_all;
  }
  if (t.gate_dim > 0) attention["gate_dim"] = t.gate_dim;
  if (t.chunked) attention["chunked"] = true;
  if (t.index_topk > 0)
    attention.update(
        {{"index_heads", t.index_heads}, {"index_dim", t.index_dim}, {"index_topk", t.index_topk}});
  if (t.index_block > 1) attention["index_block"] = t.index_block;
  if (t.index_pooled) attention["index_pooled"] = true;
  return attention;
}

}  // namespace

ordered_json model_object(const Architecture& a) {
  ordered_json object{{"name", a.name},
                      {"hidden", a.hidden},
                      {"layers", a.layers},
                      {"vocabulary", a.vocabulary},
                      {"tied_embeddings", a.tied_embeddings},
                      {"norm_bias", a.norm_bias},
                      {"attention", attention_object(a.attention)},
                      {"dense_ffn", a.dense_ffn},
                      {"dense_layers", a.dense_layers},
                      {"moe_every", a.moe_every},
                      {"experts", a.experts},
                      {"topk", a.topk},
                      {"expert_ffn", a.expert_ffn},
                      {"gated", a.gated},
                      {"expert_bias", a.expert_bias},
                      {"router_bias", a.router_bias},
                      {"shared_ffn", a.shared_ffn},
                      {"shared_gate", a.shared_gate},
                      {"routing_groups", a.routing_groups},
                      {"routing_topk_groups", a.routing_topk_groups},
                      {"mtp_layers", a.mtp_layers},
                      {"latent", a.latent},
                      {"pattern", a.pattern}};
  if (!a.embedding_active) object["embedding_active"] = false;
  if (!a.head_active) object["head_active"] = false;
  if (a.mamba.heads > 0)
    object["mamba"] = {{"heads", a.mamba.heads},
                       {"head_dim", a.mamba.head_dim},
                       {"state", a.mamba.state},
                       {"groups", a.mamba.groups},
                       {"conv", a.mamba.conv}};
  if (a.mamba.rank > 0) object["mamba"]["rank"] = a.mamba.rank;
  if (a.windowed.heads > 0) object["windowed_attention"] = attention_object(a.windowed);
  if (const LinearAttention& l = a.linear; l.value_heads > 0)
    object["linear_attention"] = {{"kind", name_of(l.kind)},      {"key_heads", l.key_heads},
                                  {"value_heads", l.value_heads}, {"key_dim", l.key_dim},
                                  {"value_dim", l.value_dim},     {"conv", l.conv},
                                  {"gate_rank", l.gate_rank}};
  if (!a.dense_sizes.empty()) object["dense_sizes"] = a.dense_sizes;
  if (a.zero_experts > 0) object["zero_experts"] = a.zero_experts;
  if (a.convolution.taps > 0)
    object["convolution"] = {{"taps", a.convolution.taps}, {"bias", a.convolution.bias}};
  if (a.residual.kind == Residual::Kind::kHyper)
    object["residual"] = {{"kind", "hyper"}, {"streams", a.residual.streams}};
  if (a.residual.kind == Residual::Kind::kGroups)
    object["residual"] = {{"kind", "groups"}, {"layers", a.residual.group}};
  if (!a.mixers.empty()) object["mixers"] = a.mixers;
  if (!a.ffns.empty()) object["ffns"] = a.ffns;
  return object;
}

ordered_json to_json(const Architecture& model) {
  ordered_json object = model_object(model);
  const auto names = Architecture::names();
  if (std::find(names.begin(), names.end(), model.name) != names.end() &&
      model_object(Architecture::load(model.name)) == object)
    return model.name;
  return object;
}

}  // namespace moesim::models
