#include "models/workload/model_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

using nlohmann::ordered_json;

const char* linear_name(LinearAttention::Kind kind) {
  return kind == LinearAttention::Kind::kLightning    ? "lightning attention"
         : kind == LinearAttention::Kind::kGatedDelta ? "gated DeltaNet"
                                                      : "Kimi delta attention";
}

std::string kind_of(const LayerKind& layer, const Architecture& model) {
  std::string text;
  const auto add = [&](const char* part) { text += (text.empty() ? "" : " + ") + std::string(part); };
  using enum LayerKind::Mixer;
  if (layer.mixer == kWindowed) add(model.attention.chunked ? "chunked attention" : "windowed attention");
  if (layer.mixer == kAttention) add(model.attention.index_topk > 0 ? "sparse attention" : "attention");
  if (layer.mixer == kFull) add("attention");
  if (layer.mixer == kShared) add("sparse attention of a shared choice");
  if (layer.mixer == kSelected) add("sparse compressed attention");
  if (layer.mixer == kCompressed) add("compressed attention");
  if (layer.mixer == kConvolution) add("short convolution");
  if (layer.mixer == kMamba) add(model.mamba.rank > 0 ? "Mamba-1" : "Mamba");
  if (layer.mixer == kLinear) add(linear_name(model.linear.kind));
  if (layer.ffn == LayerKind::Ffn::kMoe) add("experts");
  if (layer.ffn == LayerKind::Ffn::kDense) add("dense FFN");
  if (layer.dense_ffn > 0) text += fmt::format(" of {}", layer.dense_ffn);
  return (layer.mtp ? "MTP: " : "") + text;
}

bool has_attention(const Architecture& model) {
  return std::ranges::any_of(layer_stack(model), [](const LayerKind& l) { return is_attention(l.mixer); });
}

// MLA, or the way in which heads share keys and values.
const char* attention_kind(const Attention& a) {
  if (a.kind == Attention::Kind::kLatent) return "MLA";
  if (a.kv_heads == a.heads) return "MHA";
  return a.kv_heads == 1 ? "MQA" : "GQA";
}

std::string billions(std::int64_t parameters) {
  const double b = static_cast<double>(parameters) * 1e-9;
  return b >= 0.995 ? fmt::format("{:.1f} B", b) : fmt::format("{:.1f} M", b * 1e3);
}

ordered_json attention_json(const Architecture& model) {
  if (!has_attention(model)) return nullptr;
  const Attention& a = model.attention;
  ordered_json j{{"kind", attention_kind(a)}, {"heads", a.heads}};
  if (a.kind == Attention::Kind::kLatent)
    j.update({{"query_rank", a.q_rank}, {"kv_rank", a.kv_rank}});
  else
    j.update({{"kv_heads", a.kv_heads}, {"head_dim", a.head_dim}});
  if (a.window > 0) j["window"] = a.window;
  if (a.index_topk > 0) j["index_topk"] = a.index_topk;
  return j;
}

ordered_json experts_json(const Architecture& model) {
  if (model.experts == 0) return nullptr;
  ordered_json j{{"count", model.experts}, {"topk", model.topk}, {"ffn", model.expert_ffn}};
  if (model.shared_ffn > 0) j["shared_ffn"] = model.shared_ffn;
  if (model.latent > 0) j["width"] = model.latent;
  return j;
}

}  // namespace

std::vector<LayerCount> layer_counts(const Architecture& model) {
  std::vector<LayerCount> counts;
  for (const LayerKind& layer : layer_stack(model)) {
    const std::string kind = kind_of(layer, model);
    const auto at = std::ranges::find(counts, kind, &LayerCount::kind);
    if (at == counts.end())
      counts.push_back({kind, 1});
    else
      ++at->count;
  }
  return counts;
}

std::string attention_text(const Architecture& model) {
  if (!has_attention(model)) return "none";
  const Attention& a = model.attention;
  std::string text = fmt::format("{}, {} heads", attention_kind(a), a.heads);
  if (a.kind == Attention::Kind::kLatent)
    text += a.q_rank > 0 ? fmt::format(", ranks {} of queries, {} of keys and values", a.q_rank, a.kv_rank)
                         : fmt::format(", rank {} of keys and values", a.kv_rank);
  else
    text += fmt::format(" of {}", a.head_dim);
  if (a.kind == Attention::Kind::kGrouped && a.kv_heads != a.heads)
    text += fmt::format(", {} of keys and values", a.kv_heads);
  if (a.window > 0) text += fmt::format(", {} of {}", a.chunked ? "chunks" : "windows", a.window);
  if (model.windowed.heads > 0)
    text +=
        fmt::format(" with {} heads, {} of keys and values", model.windowed.heads, model.windowed.kv_heads);
  if (a.compress_all > 0) text += fmt::format(", a key of {} tokens", a.compress_all);
  if (a.index_topk > 0)
    text += a.compress > 0
                ? fmt::format(", {} keys of {} tokens of an indexer's choice", a.index_topk, a.compress)
                : fmt::format(", {} tokens of an indexer's choice", a.index_topk);
  if (model.residual.kind == Residual::Kind::kHyper)
    text += fmt::format("; {} residual streams", model.residual.streams);
  if (model.residual.kind == Residual::Kind::kGroups)
    text += fmt::format("; residuals of groups of {} layers", model.residual.group);
  return text;
}

std::string experts_text(const Architecture& model) {
  if (model.experts == 0) return "none";
  std::string text = fmt::format("{} experts of {}, top-{}", model.experts, model.expert_ffn, model.topk);
  if (model.shared_ffn > 0) text += fmt::format(", shared {}", model.shared_ffn);
  if (model.latent > 0) text += fmt::format(", {} wide", model.latent);
  if (model.zero_experts > 0) text += fmt::format(", {} that compute nothing", model.zero_experts);
  return text;
}

std::string model_text(const Architecture& model) {
  std::vector<std::string> layers;
  for (const LayerCount& one : layer_counts(model))
    layers.push_back(fmt::format("{} x {}", one.count, one.kind));
  return fmt::format("{}{}: {} parameters, {} active; layers {}; {}; {}", model.name,
                     model.source.empty() ? "" : " (" + model.source + ")", billions(model.parameters()),
                     billions(model.active_parameters()), join(layers, ", "), attention_text(model),
                     model.experts == 0 ? "no experts" : experts_text(model));
}

ordered_json model_summary(const Architecture& model) {
  ordered_json j{{"name", model.name},
                 {"source", model.source},
                 {"parameters", {{"total", model.parameters()}, {"active", model.active_parameters()}}},
                 {"layers", ordered_json::array()},
                 {"attention", attention_json(model)},
                 {"experts", experts_json(model)},
                 {"ignored_keys", model.ignored_keys},
                 {"unknown_keys", model.unknown_keys}};
  for (const LayerCount& one : layer_counts(model))
    j["layers"].push_back({{"kind", one.kind}, {"count", one.count}});
  return j;
}

Architecture asked_model(const Scenario& scenario) {
  Architecture model = scenario.model;
  if (scenario.topk > 0) model.topk = scenario.topk;
  return model;
}

}  // namespace moesim::models
