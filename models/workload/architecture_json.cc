// Reading architectures: built-in names, our own objects, Hugging Face config.json.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/architecture_builtin.h"
#include "models/workload/model_keys.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// At least as many parameters as the model has, layer kinds that do not occur counted too: where this is
// below 2^62, no count overflows.
double most_parameters(const Architecture& a) {
  const auto d = [](std::int64_t size) { return static_cast<double>(size); };
  const Attention& t = a.attention;
  const Mamba& m = a.mamba;
  const double ranks = d(t.q_rank) + d(t.kv_rank),
               columns = d(t.head_dim) + d(t.nope_dim) + d(t.rope_dim) + d(t.value_dim);
  const double width = d(std::max(a.hidden, a.latent)) + 1;
  const double attention =
      (width + ranks) * ((d(t.heads) + d(t.kv_heads)) * (columns + 1) + ranks + d(t.rope_dim) + 1);
  const double mamba =
      (width + d(m.conv) + 1) * (d(m.heads) * (d(m.head_dim) + 1) + d(m.groups) * d(m.state));
  const double ffn =
      width * (d(a.dense_ffn) + d(a.shared_ffn) + d(a.latent) + d(a.experts) * (d(a.expert_ffn) + 1) + 1);
  return d(a.layers) * 4 * (attention + mamba + ffn) + 2 * d(a.vocabulary) * width;
}

void check_consistent(const Architecture& a, const JsonNode& node) {
  if (const double most = most_parameters(a); most > 0x1p62)
    node.fail(fmt::format("sizes of {:.0e} parameters", most), "at most 4e18");
  if (a.experts > 0 && (a.topk < 1 || a.topk > a.experts))
    node.fail(fmt::format("top-{} of {} experts", a.topk, a.experts), "1 <= top-k <= experts");
  if (a.attention.kind == Attention::Kind::kGrouped && a.attention.kv_heads > 0 &&
      a.attention.heads % a.attention.kv_heads != 0)
    node.fail(
        fmt::format("{} attention heads for {} key/value heads", a.attention.heads, a.attention.kv_heads),
        "a multiple");
  if (a.dense_layers > a.layers)
    node.fail(fmt::format("{} dense layers of {}", a.dense_layers, a.layers), "at most all layers");
  const bool dense = a.pattern.empty() ? a.moe_layers() < a.layers : a.pattern.find('-') != std::string::npos;
  if (dense && a.dense_ffn == 0 && (a.layers > 1 || a.experts == 0))
    node.fail("dense layers without an inner size", "\"dense_ffn\" (or \"intermediate_size\") for them");
}

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
  }
  a.qkv_bias = o.boolean("qkv_bias", false);
  a.output_bias = o.boolean("output_bias", false);
  a.qk_norm = o.boolean("qk_norm", false);
  a.sinks = o.boolean("sinks", false);
  a.window = o.integer("window", 0, 0, kMaxSize);
  a.window_every = o.integer("window_every", 0, 0, kMaxSize);
  o.finish();
  return a;
}

// Takes the letters of a hybrid model's layers; the number of layers is theirs.
void set_pattern(Architecture& a, const std::string& pattern, const JsonNode& node) {
  a.pattern = pattern;
  if (pattern.empty()) return;
  if (const std::size_t odd = pattern.find_first_not_of("M*E-"); odd != std::string::npos)
    node.fail(fmt::format("layer pattern letter {}", in_quotes(pattern.substr(odd, 1))),
              "M (Mamba), * (attention), E (experts) or - (dense FFN)");
  if (pattern.find('M') != std::string::npos && a.mamba.heads == 0)
    node.fail("Mamba layers without sizes", "\"mamba\" (or \"mamba_num_heads\") for them");
  a.layers = static_cast<std::int64_t>(pattern.size());
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
  a.name = o.string("name", based ? a.name : name.empty() ? "custom" : name);
  a.source = node.place().file;
  // What a layer needs has no default; what only a whole model needs has a small one.
  const auto size = [&](const char* key, std::int64_t present, std::int64_t low) {
    return based ? o.integer(key, present, low, kMaxSize) : o.at(key).integer(low, kMaxSize);
  };
  a.hidden = size("hidden", a.hidden, 1);
  a.experts = size("experts", a.experts, 0);
  if (a.experts > 0) {
    a.topk = size("topk", a.topk, 1);
    a.expert_ffn = size("expert_ffn", a.expert_ffn, 1);
  } else {
    // A dense model says no more of experts; what it repeats after itself (to_json) is nothing.
    for (const char* key : {"topk", "expert_ffn"})
      if (const auto value = o.find(key); value && value->integer(0, kMaxSize) > 0)
        value->fail(value->describe(), "0 in a model without experts");
    a.topk = a.expert_ffn = 0;
  }
  a.layers = o.integer("layers", based ? a.layers : 1, 1, 1 << 20);
  a.vocabulary = o.integer("vocabulary", a.vocabulary, 0, kMaxSize);
  a.tied_embeddings = o.boolean("tied_embeddings", a.tied_embeddings);
  a.embedding_active = o.boolean("embedding_active", a.embedding_active);
  a.norm_bias = o.boolean("norm_bias", a.norm_bias);
  if (const auto attention = o.find("attention")) {
    a.attention = parse_attention(*attention, a.hidden);
  } else if (!based) {
    // Heads of 128 columns, or one head where the model is narrower.
    a.attention.heads = a.attention.kv_heads = std::max<std::int64_t>(1, a.hidden / 128);
    a.attention.head_dim = a.hidden / a.attention.heads;
  }
  a.dense_ffn = o.integer("dense_ffn", a.dense_ffn, 0, kMaxSize);
  a.dense_layers = o.integer("dense_layers", a.dense_layers, 0, 1 << 20);
  a.moe_every = o.integer("moe_every", a.moe_every, 1, 1 << 20);
  a.gated = o.boolean("gated", a.gated);
  a.expert_bias = o.boolean("expert_bias", a.expert_bias);
  a.router_bias = o.boolean("router_bias", a.router_bias);
  a.shared_ffn = o.integer("shared_ffn", a.shared_ffn, 0, kMaxSize);
  a.shared_gate = o.boolean("shared_gate", a.shared_gate);
  a.routing_groups = o.integer("routing_groups", a.routing_groups, 1, kMaxSize);
  a.routing_topk_groups = o.integer("routing_topk_groups", a.routing_topk_groups, 1, kMaxSize);
  a.mtp_layers = o.integer("mtp_layers", a.mtp_layers, 0, 1 << 20);
  a.latent = o.integer("latent", a.latent, 0, kMaxSize);
  if (const auto mamba = o.find("mamba")) {
    JsonObject m(*mamba);
    a.mamba.heads = m.at("heads").integer(1, kMaxSize);
    a.mamba.head_dim = m.integer("head_dim", a.mamba.head_dim, 1, kMaxSize);
    a.mamba.state = m.integer("state", a.mamba.state, 1, kMaxSize);
    a.mamba.groups = m.integer("groups", a.mamba.groups, 1, kMaxSize);
    a.mamba.conv = m.integer("conv", a.mamba.conv, 1, kMaxSize);
    m.finish();
  }
  set_pattern(a, o.string("pattern", a.pattern), node);
  o.finish();
  check_consistent(a, node);
  return a;
}

// The first of several spellings that is present and not null.
std::optional<JsonNode> first_of(const JsonNode& node, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (auto value = node.find(key); value && !value->is_null()) return value;
  // DBRX nests them.
  for (const char* part : {"ffn_config", "attn_config"})
    if (const auto nested = node.find(part); nested && nested->is_object())
      for (const char* key : keys)
        if (auto value = nested->find(key); value && !value->is_null()) return value;
  return std::nullopt;
}

// A number, or the same number for every layer.
std::int64_t whole_number(const JsonNode& value, std::int64_t low) {
  if (!value.is_array() || value.size() == 0) return value.integer(low, kMaxSize);
  const std::vector<std::int64_t> layers = value.integers(low, kMaxSize);
  if (std::ranges::adjacent_find(layers, std::not_equal_to<>()) != layers.end())
    value.fail("that differs from layer to layer", "the same in all layers");
  return layers.front();
}

std::int64_t size_of(const JsonNode& node, std::initializer_list<const char*> keys, std::int64_t fallback,
                     std::int64_t low = 0) {
  const auto value = first_of(node, keys);
  if (!value && fallback < low)
    node.fail(fmt::format("no \"{}\"", *keys.begin()), "this key in a Hugging Face config");
  return value ? whole_number(*value, low) : fallback;
}

bool flag_of(const JsonNode& node, const char* key, bool fallback) {
  const auto value = first_of(node, {key});
  return value && value->is_boolean() ? value->boolean() : fallback;
}

Attention hugging_face_attention(const JsonNode& node, std::int64_t hidden) {
  Attention a;
  a.heads = size_of(node, {"num_attention_heads", "n_heads"}, 0, 1);
  a.qkv_bias = a.output_bias = flag_of(node, "attention_bias", false);
  if (flag_of(node, "qkv_bias", false) || flag_of(node, "use_qkv_bias", false)) a.qkv_bias = true;
  if (first_of(node, {"kv_lora_rank"})) {
    a.kind = Attention::Kind::kLatent;
    a.q_rank = size_of(node, {"q_lora_rank"}, 0);
    a.kv_rank = size_of(node, {"kv_lora_rank"}, 0, 1);
    a.nope_dim = size_of(node, {"qk_nope_head_dim"}, 0, 1);
    a.rope_dim = size_of(node, {"qk_rope_head_dim"}, 0, 1);
    a.value_dim = size_of(node, {"v_head_dim"}, 0, 1);
    return a;
  }
  a.kv_heads = size_of(node, {"num_key_value_heads", "kv_n_heads"}, a.heads, 1);
  a.head_dim =
      size_of(node, {"head_dim", "attention_head_dim"}, std::max<std::int64_t>(1, hidden / a.heads), 1);
  a.window = size_of(node, {"sliding_window"}, 0);
  if (const auto used = first_of(node, {"use_sliding_window"});
      used && used->is_boolean() && !used->boolean())
    a.window = 0;
  return a;
}

// Experts in all layers but the first ones, or in every so many-th.
void set_expert_layers(const JsonNode& node, Architecture& a) {
  a.dense_layers = size_of(node, {"first_k_dense_replace", "n_dense_layers"}, 0);
  const auto every = first_of(node, {"interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq"});
  if (!every || !every->is_array()) {
    a.moe_every = every ? std::max<std::int64_t>(1, every->integer(0, kMaxSize)) : 1;
    return;
  }
  // One for a layer with experts, 0 for one without.
  const std::vector<std::int64_t> layers = every->integers(0, 1);
  const auto first = std::find(layers.begin(), layers.end(), 1);
  if (static_cast<std::int64_t>(layers.size()) != a.layers ||
      std::find(first, layers.end(), 0) != layers.end())
    every->fail(
        fmt::format("{} items, with gaps or not one for each of the {} layers", layers.size(), a.layers),
        "zeros for the leading dense layers and then ones");
  a.dense_layers = first - layers.begin();
}

// Layers by name, as newer files list them. Windowed and full attention in turn is gpt-oss's.
void check_layer_types(const JsonNode& node, Architecture& a) {
  const auto types = first_of(node, {"layer_types"});
  if (!types || !types->is_array()) return;
  std::int64_t windowed = 0, place = 0;
  bool in_turn = true;
  for (const JsonNode& type : types->items()) {
    const std::string name = type.string();
    if (name != "full_attention" && name != "sliding_attention")
      types->fail("with " + in_quotes(name),
                  "full_attention and sliding_attention: other layers are not modelled here");
    const bool window = name == "sliding_attention";
    windowed += window;
    in_turn = in_turn && window == (place++ % 2 == 0);
  }
  if (windowed == 0) {
    a.attention.window = 0;
  } else if (in_turn) {
    a.attention.window_every = 2;
  } else if (windowed < place) {
    types->fail("with windows in an order of its own", "all full, all sliding, or sliding and full in turn");
  }
}

// Letters of a hybrid model's layers: those of a pattern, or of a list of names.
std::string hybrid_pattern(const JsonNode& node) {
  if (const auto pattern = first_of(node, {"hybrid_override_pattern"}); pattern && pattern->is_string())
    return pattern->string();
  const auto names = first_of(node, {"layers_block_type"});
  if (!names || !names->is_array()) return "";
  std::string letters;
  for (const JsonNode& name : names->items()) {
    const std::string kind = name.string();
    if (kind != "mamba" && kind != "moe" && kind != "attention" && kind != "mlp")
      names->fail("with " + in_quotes(kind),
                  "mamba, attention, moe and mlp: other layers are not modelled here");
    letters += kind == "mamba" ? 'M' : kind == "moe" ? 'E' : kind == "attention" ? '*' : '-';
  }
  return letters;
}

Architecture parse_hugging_face(const JsonNode& node, const std::string& name) {
  refuse_other_models(node);
  Architecture a;
  const auto type = first_of(node, {"model_type"});
  const std::string family = type && type->is_string() ? type->string() : "hugging-face";
  a.name = name.empty() ? family : name;
  a.source = node.place().file;
  a.hidden = size_of(node, {"hidden_size", "d_model", "dim"}, 0, 1);
  const std::string pattern = hybrid_pattern(node);
  a.layers = pattern.empty() ? size_of(node, {"num_hidden_layers", "n_layers", "num_layers"}, 0, 1) : 1;
  a.vocabulary = size_of(node, {"vocab_size"}, 0);
  a.tied_embeddings = flag_of(node, "tie_word_embeddings", false);
  if (first_of(node, {"num_attention_heads", "n_heads"})) {
    a.attention = hugging_face_attention(node, a.hidden);
  } else {
    a.attention.heads = a.attention.kv_heads = std::max<std::int64_t>(1, a.hidden / 128);
    a.attention.head_dim = a.hidden / a.attention.heads;
  }
  // A config without a number of experts is a dense model's (Llama).
  const bool dense =
      !first_of(node, {"num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"});
  if (!dense) {
    a.experts =
        size_of(node, {"num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"}, 0, 1);
    a.topk = size_of(node,
                     {"num_experts_per_tok", "moe_topk", "num_experts_per_token", "moe_top_k", "moe_k",
                      "top_k_experts", "experts_per_token", "n_activated_experts"},
                     0, 1);
  }
  const std::int64_t inner = size_of(node, {"intermediate_size", "ffn_hidden_size", "inter_dim"}, 0);
  if (!dense)
    a.expert_ffn =
        size_of(node, {"moe_intermediate_size", "expert_ffn_hidden_size", "moe_inter_dim"}, inner, 1);
  // Keys of a dense inner size beside the experts': DeepSeek and Qwen call it intermediate_size, Llama 4
  // _mlp.
  a.dense_ffn = size_of(node, {"intermediate_size_mlp"}, inner);
  if (!dense) set_expert_layers(node, a);
  check_layer_types(node, a);
  const std::int64_t shared =
      size_of(node, {"n_shared_experts", "num_shared_experts", "num_shared_expert"}, 0);
  a.shared_ffn =
      size_of(node, {"shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size"},
              shared * a.expert_ffn);
  if (family.starts_with("llama4") && a.shared_ffn == 0) a.shared_ffn = a.expert_ffn;
  a.shared_gate = first_of(node, {"shared_expert_intermediate_size"}).has_value();
  a.routing_groups =
      std::max<std::int64_t>(1, size_of(node, {"n_group", "n_expert_groups", "num_expert_group"}, 1));
  a.routing_topk_groups = std::max<std::int64_t>(1, size_of(node, {"topk_group", "n_limited_groups"}, 1));
  a.mtp_layers = size_of(node, {"num_nextn_predict_layers"}, 0);
  a.attention.qk_norm = flag_of(node, "use_qk_norm", family.starts_with("qwen3") || family == "olmoe");
  if (family == "qwen2_moe") a.attention.qkv_bias = true;
  if (family == "gpt_oss") {
    a.attention.sinks = a.expert_bias = a.router_bias = true;
    a.attention.window_every = 2;
    a.embedding_active = false;
  }
  if (family == "deepseek_v3" || family == "kimi_k2") a.router_bias = true;
  if (!pattern.empty()) {
    a.gated = false;  // squared ReLU (Nemotron-H)
    a.router_bias = true;
    a.latent = size_of(node, {"moe_latent_size"}, 0);
    a.shared_ffn = size_of(node, {"moe_shared_expert_intermediate_size"}, a.shared_ffn);
    a.shared_gate = false;
    a.mamba.heads = size_of(node, {"mamba_num_heads"}, 0);
    a.mamba.head_dim = size_of(node, {"mamba_head_dim"}, a.mamba.head_dim, 1);
    a.mamba.state = size_of(node, {"ssm_state_size", "mamba_state_dim"}, a.mamba.state, 1);
    a.mamba.groups = size_of(node, {"n_groups", "mamba_num_groups"}, a.mamba.groups, 1);
    a.mamba.conv = size_of(node, {"conv_kernel"}, a.mamba.conv, 1);
    set_pattern(a, pattern, node);
  }
  check_consistent(a, node);
  KeyUse use = key_use(node);
  if (!use.unknown.empty())
    a.remarks.push_back(fmt::format("{}: not used, and not known to leave the model alone: {}",
                                    node.place().file, join(use.unknown, ", ")));
  a.ignored_keys = std::move(use.irrelevant);
  a.unknown_keys = std::move(use.unknown);
  return a;
}

// Hugging Face writes numbers that JSON does not have; as long as JSON's own, so that places stay.
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

// What a model without a name of its own is called: as its file, or as the folder of a config.json.
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

Architecture Architecture::parse(const JsonNode& node, const std::string& name) {
  if (node.is_string()) return load(node.string());
  if (!node.is_object()) node.fail(node.describe(), "a model's name, an object, or a Hugging Face config");
  // Multimodal checkpoints nest the language model.
  for (const char* part : {"text_config", "language_config", "llm_config"})
    if (const auto text = node.find(part); text && text->is_object()) {
      Architecture a = parse(*text, name);
      a.remarks.push_back(fmt::format("{}: the language model ({}) alone is taken", node.place().file, part));
      return a;
    }
  const bool hugging_face =
      node.find("hidden_size") || node.find("d_model") || (node.find("dim") && node.find("n_layers"));
  return hugging_face ? parse_hugging_face(node, name) : parse_own(node, name);
}

Architecture Architecture::load(const std::string& name_or_path) {
  for (const Architecture& a : builtin_architectures())
    if (a.name == name_or_path) return a;
  const bool path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json") ||
                    path_exists(name_or_path);
  if (!path) {
    const std::vector<std::string> known(names().begin(), names().end());
    throw InputError(fmt::format("model: found {}, expected one of {} or the path of a JSON file{}",
                                 in_quotes(name_or_path), join(known, ", "),
                                 did_you_mean(name_or_path, known)));
  }
  const std::filesystem::path file = std::filesystem::is_directory(name_or_path)
                                         ? std::filesystem::path(name_or_path) / "config.json"
                                         : std::filesystem::path(name_or_path);
  return parse(
      JsonNode::parse(with_json_numbers(read_file(file.string(), std::uint64_t{1} << 30)), file.string()),
      name_of_file(file));
}

}  // namespace moesim::models
