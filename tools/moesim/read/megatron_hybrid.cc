// Megatron's arguments of hybrid models: layers by letter, Mamba.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/step/pipeline_layout.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools::megatron {

const char* unwritten_layers(const models::Architecture& a) {
  return a.linear.value_heads > 0     ? "linear attention"
         : a.mamba.rank > 0           ? "Mamba layers of the first kind"
         : a.attention.index_topk > 0 ? "sparse attention"
         : a.attention.gate_dim > 0   ? "gates on the output of attention"
         : a.windowed.heads > 0       ? "windowed layers with heads of their own"
         : a.attention.value_dim > 0 && a.attention.kind == models::Attention::Kind::kGrouped
             ? "values of another width than keys"
         : a.residual != models::Residual{} ? "several residual streams"
         : a.zero_experts > 0               ? "experts that compute nothing"
         : a.attention.q_rank > 0 && a.attention.kind == models::Attention::Kind::kGrouped
             ? "queries of low rank"
         : a.convolution.taps > 0 ? "short convolutions"
         : !a.dense_sizes.empty() ? "dense FFNs of several sizes"
         : !a.mixers.empty() || a.pattern.find('W') != std::string::npos
             ? "layers of several kinds in an order of their own"
             : nullptr;
}

namespace {

using models::Architecture;
using models::Scenario;

void read_hybrid(JobReader& r) {
  const bool hybrid = r.flag("is_hybrid_model");
  const std::string pattern = hybrid_pattern(r).layers;
  if (pattern.empty()) {
    for (const char* ratio : {"hybrid_attention_ratio", "hybrid_mlp_ratio"})
      if (r.number(ratio).value_or(0) > 0) r.fail(ratio, "--hybrid-layer-pattern, which says every layer");
    if (hybrid) r.fail("is_hybrid_model", "--hybrid-layer-pattern beside it, which says every layer");
    return;
  }
  r.set("model.pattern", pattern);
  if (pattern.find('M') == std::string::npos) return;
  const std::int64_t columns = r.whole_or("mamba_head_dim", 64);
  const auto hidden = r.whole("hidden_size");
  const auto heads = r.whole("mamba_num_heads");
  r.set("model.mamba.heads", heads ? *heads : std::max<std::int64_t>(1, 2 * hidden.value_or(1) / columns));
  r.set("model.mamba.head_dim", columns);
  r.set("model.mamba.state", r.whole_or("mamba_state_dim", 128));
  r.set("model.mamba.groups", r.whole_or("mamba_num_groups", 8));
}

// Returns a model's pattern with a | between stages, which alone cuts a hybrid model (Megatron-LM main d98e8a64,
// hybrid_layer_allocation.py), and its MTP layers.
std::string staged_pattern(const Scenario& s) {
  std::string text;
  std::size_t at = 0;
  for (const models::Chunk& chunk : models::PipelineLayout(s, false).chunks) {
    const auto layers =
        static_cast<std::size_t>(std::ranges::count(chunk.layers, false, &models::LayerKind::mtp));
    text += (text.empty() ? "" : "|") + s.model.pattern.substr(at, layers);
    at += layers;
  }
  for (std::int64_t i = 0; i < s.model.mtp_layers; ++i) text += s.model.experts > 0 ? "/*E" : "/*-";
  return text;
}

void write_hybrid(const Scenario& s, Arguments& out) {
  const Architecture& a = s.model;
  if (const char* other = unwritten_layers(a))
    throw InputError(fmt::format(
        "model: found {}, which has {}, expected layers that Megatron's arguments say", a.name, other));
  if (a.pattern.empty()) return;
  out.emplace_back("is_hybrid_model", true);
  out.emplace_back("num_layers", a.layers);
  out.emplace_back("hybrid_layer_pattern", staged_pattern(s));
  if (a.mamba.heads == 0) return;
  out.emplace_back("mamba_num_heads", a.mamba.heads);
  out.emplace_back("mamba_head_dim", a.mamba.head_dim);
  out.emplace_back("mamba_state_dim", a.mamba.state);
  out.emplace_back("mamba_num_groups", a.mamba.groups);
}

}  // namespace

HybridPattern hybrid_pattern(JobReader& r) {
  HybridPattern out;
  const std::string text = r.text("hybrid_layer_pattern");
  if (text.empty()) return out;
  const std::vector<std::string_view> parts = split(text, '/');
  out.layers = parts.front();
  out.stages += std::ranges::count(out.layers, '|');
  std::erase(out.layers, '|');
  if (out.layers.empty() || out.layers.find_first_not_of("M*E-") != std::string::npos)
    r.fail("hybrid_layer_pattern", "letters M, *, E and -: other layers are not modelled here");
  std::vector<std::string> depths(parts.begin() + 1, parts.end());
  if (const std::string old = r.text("mtp_hybrid_override_pattern"); !old.empty() && depths.empty())
    depths.assign(static_cast<std::size_t>(r.whole("mtp_num_layers", 0, 64).value_or(0)), old);
  const std::string_view usual = experts_of(r) > 0 ? "*E" : "*-";
  for (const std::string& depth : depths)
    if (depth != usual)
      r.fail(r.has("mtp_hybrid_override_pattern") ? "mtp_hybrid_override_pattern" : "hybrid_layer_pattern",
             fmt::format("MTP layers of {}: others are not modelled here", usual));
  out.mtp = std::ssize(depths);
  return out;
}

std::vector<ArgumentRule> hybrid_rules() {
  return {{{"is_hybrid_model", "hybrid_attention_ratio", "hybrid_mlp_ratio", "mamba_num_heads",
            "mamba_head_dim", "mamba_state_dim", "mamba_num_groups"},
           read_hybrid,
           write_hybrid}};
}

}  // namespace moesim::tools::megatron
