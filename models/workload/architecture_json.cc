// Reads architectures: built-in names, our own objects, Hugging Face config.json.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/architecture_builtin.h"
#include "models/workload/architecture_check.h"
#include "models/workload/architecture_config.h"
#include "models/workload/model_aliases.h"
#include "models/workload/model_config.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxSize = kMaxModelSize;

Attention parse_attention(const JsonNode& node, std::int64_t hidden) {
  JsonObject o(node);
  Attention a;
  const std::string kind = o.string("kind", "grouped");
  if (kind != "grouped" && kind != "latent") o.at("kind").fail(in_quotes(kind), "\"grouped\" or \"latent\"");
  a.heads = o.at("heads").integer(1, kMaxSize);
  if (kind == "latent") {
    a.kind = Attention::Kind::kLatent;
    a.q_rank = o.integer("q_rank", 0, 0, kMaxSize);
    a.kv_rank = o.at("kv_rank").integer(1, kMaxSize);
    a.nope_dim = o.integer("nope_dim", 128, 0, kMaxSize);
    a.rope_dim = o.integer("rope_dim", 64, 0, kMaxSize);
    a.value_dim = o.integer("value_dim", 128, 1, kMaxSize);
  } else {
    a.kv_heads = o.integer("kv_heads", a.heads, 1, kMaxSize);
    a.head_dim = o.integer("head_dim", std::max<std::int64_t>(1, hidden / a.heads), 1, kMaxSize);
    a.value_dim = o.integer("value_dim", 0, 0, kMaxSize);
    a.q_rank = o.integer("q_rank", 0, 0, kMaxSize);
    a.output_groups = o.integer("output_groups", 0, 0, kMaxSize);
    a.output_rank = o.integer("output_rank", 0, 0, kMaxSize);
    a.compress = o.integer("compress", 0, 0, 1 << 20);
    a.compress_all = o.integer("compress_all", 0, 0, 1 << 20);
    a.shared_values = o.boolean("shared_values", false);
  }
  a.qkv_bias = o.boolean("qkv_bias", false);
  a.output_bias = o.boolean("output_bias", false);
  a.qk_norm = o.boolean("qk_norm", false);
  a.sinks = o.boolean("sinks", false);
  a.gate_dim = o.integer("gate_dim", 0, 0, kMaxSize);
  a.window = o.integer("window", 0, 0, kMaxSize);
  a.window_every = o.integer("window_every", 0, 0, kMaxSize);
  a.chunked = o.boolean("chunked", false);
  if (o.find("index_topk")) {
    a.index_topk = o.integer("index_topk", 0, 0, kMaxSize);
    a.index_heads = o.at("index_heads").integer(a.index_topk > 0 ? 1 : 0, kMaxSize);
    a.index_dim = o.at("index_dim").integer(a.index_topk > 0 ? 1 : 0, kMaxSize);
    a.index_block = o.integer("index_block", 1, 1, std::max<std::int64_t>(1, a.index_topk));
    a.index_pooled = o.boolean("index_pooled", false);
  }
  o.finish();
  return a;
}

LinearAttention parse_linear(const JsonNode& node) {
  JsonObject o(node);
  LinearAttention a;
  const std::string kind = o.at("kind").string();
  using enum LinearAttention::Kind;
  constexpr std::array kKinds{kLightning, kGatedDelta, kKimiDelta};
  const auto at = std::ranges::find(kKinds, kind, [](LinearAttention::Kind k) { return name_of(k); });
  if (at == kKinds.end())
    o.at("kind").fail(in_quotes(kind), "\"lightning\", \"gated_delta\" or \"kimi_delta\"");
  a.kind = *at;
  a.value_heads = o.at("value_heads").integer(1, kMaxSize);
  a.key_heads = o.integer("key_heads", a.value_heads, 1, kMaxSize);
  a.key_dim = o.integer("key_dim", a.key_dim, 1, kMaxSize);
  a.value_dim = o.integer("value_dim", a.value_dim, 1, kMaxSize);
  a.conv = o.integer("conv", 0, 0, kMaxSize);
  a.gate_rank = o.integer("gate_rank", 0, 0, kMaxSize);
  o.finish();
  return a;
}

Residual parse_residual(const JsonNode& node) {
  JsonObject o(node);
  Residual r;
  const std::string kind = o.at("kind").string();
  if (kind == "hyper") {
    r.kind = Residual::Kind::kHyper;
    r.streams = o.at("streams").integer(2, 64);
  } else if (kind == "groups") {
    r.kind = Residual::Kind::kGroups;
    r.group = o.at("layers").integer(1, 1 << 20);
  } else if (kind != "plain") {
    o.at("kind").fail(in_quotes(kind), "\"plain\", \"hyper\" or \"groups\"");
  }
  o.finish();
  return r;
}

Architecture parse_own(const JsonNode& node, const std::string& name) {
  JsonObject o(node);
  Architecture a;
  if (const auto base = o.find("base")) {
    const auto& all = builtin_architectures();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Architecture& b) { return b.name == base->string(); });
    if (found == all.end()) {
      const std::vector<std::string> names(Architecture::names().begin(), Architecture::names().end());
      base->fail(base->describe(), "a built-in model" + did_you_mean(base->string(), names));
    }
    a = *found;
  }
  const bool based = !a.name.empty();
  const std::int64_t whole = a.layers;
  a.name = o.string("name", !name.empty() ? name : based ? a.name : "custom");
  a.source = node.place().file;
  // Sizes of a layer have no default; those of a whole model only have small ones.
  const auto size = [&](const char* key, std::int64_t present, std::int64_t low) {
    return based ? o.integer(key, present, low, kMaxSize) : o.at(key).integer(low, kMaxSize);
  };
  a.hidden = size("hidden", a.hidden, 1);
  a.experts = size("experts", a.experts, 0);
  if (a.experts > 0) {
    a.topk = size("topk", a.topk, 1);
    a.expert_ffn = size("expert_ffn", a.expert_ffn, 1);
  } else {
    // A dense model gives no more about experts; redundant values (to_json) are ignored.
    for (const char* key : {"topk", "expert_ffn"})
      if (const auto value = o.find(key); value && value->integer(0, kMaxSize) > 0)
        value->fail(value->describe(), "0 in a model without experts");
    a.topk = a.expert_ffn = 0;
  }
  a.layers = o.integer("layers", based ? a.layers : 1, 1, 1 << 20);
  a.vocabulary = o.integer("vocabulary", a.vocabulary, 0, kMaxSize);
  a.tied_embeddings = o.boolean("tied_embeddings", a.tied_embeddings);
  a.embedding_active = o.boolean("embedding_active", a.embedding_active);
  a.head_active = o.boolean("head_active", a.head_active);
  a.norm_bias = o.boolean("norm_bias", a.norm_bias);
  if (const auto attention = o.find("attention")) {
    a.attention = parse_attention(*attention, a.hidden);
  } else if (!based) {
    // Heads of 128 columns, or one head where the model is narrower.
    a.attention.heads = a.attention.kv_heads = std::max<std::int64_t>(1, a.hidden / 128);
    a.attention.head_dim = a.hidden / a.attention.heads;
  }
  a.dense_ffn = o.integer("dense_ffn", a.dense_ffn, 0, kMaxSize);
  if (const auto sizes = o.find("dense_sizes")) a.dense_sizes = sizes->integers(1, kMaxSize);
  a.dense_layers = o.integer("dense_layers", a.dense_layers, 0, 1 << 20);
  a.moe_every = o.integer("moe_every", a.moe_every, 1, 1 << 20);
  a.gated = o.boolean("gated", a.gated);
  a.expert_bias = o.boolean("expert_bias", a.expert_bias);
  a.router_bias = o.boolean("router_bias", a.router_bias);
  a.shared_ffn = o.integer("shared_ffn", a.shared_ffn, 0, kMaxSize);
  a.shared_gate = o.boolean("shared_gate", a.shared_gate);
  a.zero_experts = o.integer("zero_experts", a.zero_experts, 0, kMaxSize);
  a.routing_groups = o.integer("routing_groups", a.routing_groups, 1, kMaxSize);
  a.routing_topk_groups = o.integer("routing_topk_groups", a.routing_topk_groups, 1, kMaxSize);
  // A shortened model is trained without its multi-token-prediction layers, unless they are given.
  a.mtp_layers = o.integer("mtp_layers", a.layers < whole ? 0 : a.mtp_layers, 0, 1 << 20);
  a.latent = o.integer("latent", a.latent, 0, kMaxSize);
  if (const auto windowed = o.find("windowed_attention")) a.windowed = parse_attention(*windowed, a.hidden);
  if (const auto linear = o.find("linear_attention")) a.linear = parse_linear(*linear);
  if (const auto mamba = o.find("mamba")) {
    JsonObject m(*mamba);
    a.mamba.heads = m.at("heads").integer(1, kMaxSize);
    a.mamba.head_dim = m.integer("head_dim", a.mamba.head_dim, 1, kMaxSize);
    a.mamba.state = m.integer("state", a.mamba.state, 1, kMaxSize);
    a.mamba.groups = m.integer("groups", a.mamba.groups, 1, kMaxSize);
    a.mamba.conv = m.integer("conv", a.mamba.conv, 1, kMaxSize);
    a.mamba.rank = m.integer("rank", a.mamba.rank, 0, kMaxSize);
    m.finish();
  }
  if (const auto convolution = o.find("convolution")) {
    JsonObject c(*convolution);
    a.convolution.taps = c.at("taps").integer(1, kMaxSize);
    a.convolution.bias = c.boolean("bias", false);
    c.finish();
  }
  if (const auto residual = o.find("residual")) a.residual = parse_residual(*residual);
  set_pattern(a, o.string("pattern", a.pattern), node);
  a.mixers = o.string("mixers", a.mixers);
  a.ffns = o.string("ffns", a.ffns);
  o.finish();
  check_consistent(a, node);
  return a;
}

// Returns "; left out: vision_config, 27 layers of 1152 columns with about 0.41 B parameters" for the encoders of
// other data than text: four products of attention and two of an FFN a layer, three where it has a gate. ""
// without any.
std::string without_towers(const JsonNode& node) {
  std::string text;
  for (const char* key : {"vision_config", "audio_config", "vision_tower"}) {
    const auto tower = node.find(key);
    if (!tower || !tower->is_object() || tower->size() == 0) continue;
    const ModelConfig part(*tower);
    const auto size = [&](ModelConfig::Keys keys) -> double {
      const auto value = part.find(keys);
      return value && value->is_integer() ? static_cast<double>(value->integer()) : 0;
    };
    const double layers = size({"depth", "num_hidden_layers", "vt_num_hidden_layers"}),
                 columns = size({"hidden_size", "vt_hidden_size"}),
                 inner = size({"intermediate_size", "vt_intermediate_size"}),
                 products = part.text("hidden_act") == "silu" ? 3 : 2;
    text += (text.empty() ? "; left out: " : ", ") + std::string(key);
    if (layers <= 0 || columns <= 0 || inner <= 0) continue;
    text += fmt::format(", {:.0f} layers of {:.0f} columns with about {:.2g} B parameters", layers, columns,
                        layers * columns * (4 * columns + products * inner) * 1e-9);
  }
  return text;
}

// Replaces numbers of Hugging Face that JSON lacks by equally long JSON numbers, so that places stay.
std::string with_json_numbers(std::string text) {
  constexpr std::string_view kInfinity = "Infinity", kLarge = "1.0e+308";
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      inside = !inside;
    } else if (!inside && std::string_view(text).substr(i).starts_with(kInfinity)) {
      text.replace(i, kInfinity.size(), kLarge);
    }
  }
  return text;
}

// Returns the default name of a model: its file's, or that of the folder of a config.json.
std::string name_of_file(const std::filesystem::path& file) {
  if (file.filename() != "config.json") return file.stem().string();
  const std::string folder =
      std::filesystem::absolute(file).lexically_normal().parent_path().filename().string();
  return folder.empty() ? file.stem().string() : folder;
}

}  // namespace

std::span<const std::string> Architecture::names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Architecture& a : builtin_architectures()) all.push_back(a.name);
    return all;
  }();
  return names;
}

namespace {

// Reads a file in which `family` is that of the whole where the part of the language model names none.
Architecture parse_object(const JsonNode& node, const std::string& name, std::string family) {
  if (const auto type = node.find("model_type"); type && type->is_string()) family = type->string();
  // Multimodal checkpoints nest the language model.
  for (const char* part : {"text_config", "language_config", "llm_config", "thinker_config"})
    if (const auto text = node.find(part); text && text->is_object()) {
      Architecture a = parse_object(*text, name, family);
      // The outer config supplies the key where the part lacks it.
      if (const auto tied = node.find("tie_word_embeddings");
          tied && tied->is_boolean() && !text->find("tie_word_embeddings"))
        a.tied_embeddings = tied->boolean();
      a.remarks.push_back(fmt::format("{}: the language model ({}) alone is taken{}", node.place().file, part,
                                      without_towers(node)));
      return a;
    }
  const bool hugging_face =
      node.find("hidden_size") || node.find("d_model") || (node.find("dim") && node.find("n_layers"));
  return hugging_face ? parse_config(node, name, family) : parse_own(node, name);
}

}  // namespace

Architecture Architecture::parse(const JsonNode& node, const std::string& name) {
  if (node.is_string()) return load(node.string());
  if (!node.is_object()) node.fail(node.describe(), "a model's name, an object, or a Hugging Face config");
  return parse_object(node, name, "");
}

Architecture Architecture::load(const std::string& name_or_path) {
  for (const Architecture& a : builtin_architectures())
    if (a.name == name_or_path) return a;
  const bool path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json") ||
                    path_exists(name_or_path);
  if (!path) {
    if (const auto model = model_called(name_or_path))
      return model->starts_with('{') ? parse(JsonNode::parse(*model, "")) : load(*model);
    const std::vector<std::string> known(names().begin(), names().end());
    throw InputError(fmt::format("model: found {}, expected one of {} or the path of a JSON file{}",
                                 in_quotes(name_or_path), join(known, ", "),
                                 did_you_mean(name_or_path, known)));
  }
  const std::filesystem::path file = is_folder(name_or_path)
                                         ? std::filesystem::path(name_or_path) / "config.json"
                                         : std::filesystem::path(name_or_path);
  return parse(
      JsonNode::parse(with_json_numbers(read_file(file.string(), std::uint64_t{1} << 30)), file.string()),
      name_of_file(file));
}

}  // namespace moesim::models
