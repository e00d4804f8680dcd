#include "models/workload/model_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "models/workload/architecture.h"

namespace moesim::models {

using nlohmann::ordered_json;

ordered_json model_object(const Architecture& a) {
  const Attention& t = a.attention;
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
  }
  ordered_json object{{"name", a.name},
                      {"hidden", a.hidden},
                      {"layers", a.layers},
                      {"vocabulary", a.vocabulary},
                      {"tied_embeddings", a.tied_embeddings},
                      {"norm_bias", a.norm_bias},
                      {"attention", attention},
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
  if (a.mamba.heads > 0)
    object["mamba"] = {{"heads", a.mamba.heads},
                       {"head_dim", a.mamba.head_dim},
                       {"state", a.mamba.state},
                       {"groups", a.mamba.groups},
                       {"conv", a.mamba.conv}};
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
