// Models in our own form. One visit of what an Architecture has reads it, writes it, changes it and describes it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "models/workload/architecture.h"
#include "models/workload/model_config.h"
#include "models/workload/model_json.h"

namespace moesim::models {

using nlohmann::ordered_json;

namespace {

struct Key {
  Key(const char* word, const char* meaning = "") : name(word), about(meaning) {}  // NOLINT(*-explicit-*)
  const char* name;
  const char* about;
};

// How a value is read and written. `usual` replaces a missing value; without it the member stays as it is.
struct Row {
  std::int64_t low = 0, high = kMaxModelSize;
  bool needed = false;  // unless another model is changed
  bool written = true;
  std::int64_t usual = -1;
};

std::vector<std::string_view> names_of(Attention::Kind) { return {"grouped", "latent"}; }
std::vector<std::string_view> names_of(LinearAttention::Kind) {
  return {"lightning", "gated_delta", "kimi_delta"};
}
std::vector<std::string_view> names_of(Residual::Kind) { return {"plain", "hyper", "groups"}; }

// Each calls `v(key, value, row)` for everything in the order of files. v.when(holds) returns whether what
// follows belongs to this model, v.when(holds, key) whether it is given.
template <class Visitor, Is<Attention> A>
void visit(Visitor& v, A& a) {
  v("heads", a.heads, {.low = 1, .needed = true});
  v("qkv_bias", a.qkv_bias);
  v("output_bias", a.output_bias);
  v("qk_norm", a.qk_norm);
  v("sinks", a.sinks);
  v("window", a.window);
  v("window_every", a.window_every);
  v("kind", a.kind, {.written = a.kind == Attention::Kind::kLatent});
  if (v.when(a.kind == Attention::Kind::kLatent)) {
    v("q_rank", a.q_rank);
    v("kv_rank", a.kv_rank, {.low = 1, .needed = true});
    v("nope_dim", a.nope_dim, {.usual = 128});
    v("rope_dim", a.rope_dim, {.usual = 64});
    v("value_dim", a.value_dim, {.low = 1, .usual = 128});
  }
  if (v.when(a.kind == Attention::Kind::kGrouped)) {
    v("kv_heads", a.kv_heads, {.low = 1});
    v("head_dim", a.head_dim, {.low = 1});
    v({"value_dim", "of grouped heads 0: as head_dim"}, a.value_dim, {.written = a.value_dim > 0});
    v({"shared_values", "values are the keys"}, a.shared_values, {.written = a.shared_values});
    v("q_rank", a.q_rank, {.written = a.q_rank > 0});
    const bool narrow = a.output_groups > 0, compressed = a.compress > 0 || a.compress_all > 0;
    v({"output_groups", "groups of a low-rank output projection"}, a.output_groups, {.written = narrow});
    v({"output_rank", "columns of each of these groups"}, a.output_rank, {.written = narrow});
    v({"compress", "tokens of a compressed key that an indexer chooses"}, a.compress,
      {.high = kMaxModelLayers, .written = compressed});
    v({"compress_all", "tokens of a compressed key where all are taken"}, a.compress_all,
      {.high = kMaxModelLayers, .written = compressed});
  }
  v({"gate_dim", "columns per head of a gate on the output"}, a.gate_dim, {.written = a.gate_dim > 0});
  v({"chunked", "windows are chunks that do not slide"}, a.chunked, {.written = a.chunked});
  if (v.when(a.index_topk > 0, "index_topk")) {
    v({"index_heads", "heads of an indexer (DeepSeek-V3.2)"}, a.index_heads, {.low = 1, .needed = true});
    v({"index_dim", "columns of an indexer's head"}, a.index_dim, {.low = 1, .needed = true});
    v({"index_topk", "tokens that an indexer chooses"}, a.index_topk, {.low = 1});
    v({"index_block", "tokens that an indexer chooses together"}, a.index_block,
      {.low = 1, .high = a.index_topk > 0 ? a.index_topk : kMaxModelSize, .written = a.index_block > 1});
    v({"index_pooled", "an indexer scores one key of a block, which learned weights make of its tokens"},
      a.index_pooled, {.written = a.index_pooled});
  }
}

template <class Visitor, Is<Mamba> M>
void visit(Visitor& v, M& m) {
  v("heads", m.heads, {.low = 1, .needed = true});
  v("head_dim", m.head_dim, {.low = 1});
  v("state", m.state, {.low = 1});
  v("groups", m.groups, {.low = 1});
  v("conv", m.conv, {.low = 1});
  v({"rank", "of the step sizes; above 0: Mamba's first kind, a head for each channel"}, m.rank,
    {.written = m.rank > 0});
}

template <class Visitor, Is<LinearAttention> L>
void visit(Visitor& v, L& l) {
  v("kind", l.kind, {.needed = true});
  v("key_heads", l.key_heads, {.low = 1});
  v("value_heads", l.value_heads, {.low = 1, .needed = true});
  v("key_dim", l.key_dim, {.low = 1});
  v("value_dim", l.value_dim, {.low = 1});
  v({"conv", "taps of the short convolution"}, l.conv);
  v({"gate_rank", "of the output gate's projection; 0: full"}, l.gate_rank);
}

template <class Visitor, Is<ShortConvolution> C>
void visit(Visitor& v, C& c) {
  v("taps", c.taps, {.low = 1, .needed = true});
  v("bias", c.bias);
}

template <class Visitor, Is<Residual> R>
void visit(Visitor& v, R& r) {
  v("kind", r.kind, {.needed = true});
  if (v.when(r.kind == Residual::Kind::kHyper))
    v({"streams", "hyper: residual streams"}, r.streams, {.low = 2, .high = 64, .needed = true});
  if (v.when(r.kind == Residual::Kind::kGroups))
    v({"layers", "groups: layers of a group"}, r.group, {.low = 1, .high = kMaxModelLayers, .needed = true});
}

template <class Visitor, Is<Architecture> A>
void visit(Visitor& v, A& a) {
  const std::int64_t some = a.experts > 0 ? 1 : 0;
  v("name", a.name);
  v({"hidden", "width of the model"}, a.hidden, {.low = 1, .needed = true});
  v("layers", a.layers, {.low = 1, .high = kMaxModelLayers});
  v("vocabulary", a.vocabulary);
  v("tied_embeddings", a.tied_embeddings);
  v({"norm_bias", "norms have a bias beside their scale (LayerNorm)"}, a.norm_bias);
  v("attention", a.attention);
  v({"dense_ffn", "inner size of the dense layers' FFN"}, a.dense_ffn);
  v({"dense_layers", "dense layers before the first MoE layer"}, a.dense_layers, {.high = kMaxModelLayers});
  v({"moe_every", "every n-th layer is an MoE layer"}, a.moe_every, {.low = 1, .high = kMaxModelLayers});
  v({"experts", "0: a dense model"}, a.experts, {.needed = true});
  v({"topk", "experts per token as the model was trained"}, a.topk, {.low = some, .needed = some > 0});
  v({"expert_ffn", "inner size of an expert"}, a.expert_ffn, {.low = some, .needed = some > 0});
  v({"gated", "two matrices in, as SwiGLU has"}, a.gated);
  v("expert_bias", a.expert_bias);
  v("router_bias", a.router_bias);
  v({"shared_ffn", "inner size of all shared experts together"}, a.shared_ffn);
  v("shared_gate", a.shared_gate);
  v("routing_groups", a.routing_groups, {.low = 1});
  v("routing_topk_groups", a.routing_topk_groups, {.low = 1});
  v("mtp_layers", a.mtp_layers, {.high = kMaxModelLayers});
  v({"latent", "width inside of the experts where it is not the model's"}, a.latent);
  v({"pattern",
     "a letter per layer of one block: M Mamba, L linear attention, C short convolution, * attention, "
     "W windowed, I sparse with a shared choice, S and H over compressed keys, F all tokens beside sparse "
     "layers, E experts, - dense FFN"},
    a.pattern);
  v({"embedding_active", "whether the table of input embeddings counts as active"}, a.embedding_active,
    {.written = !a.embedding_active});
  v({"head_active", "whether the output head counts as active"}, a.head_active, {.written = !a.head_active});
  v("mamba", a.mamba, {.written = a.mamba.heads > 0});
  v({"windowed_attention", "of windowed layers with heads of their own; the window is the attention's"},
    a.windowed, {.written = a.windowed.heads > 0});
  v("linear_attention", a.linear, {.written = a.linear.value_heads > 0});
  v({"dense_sizes", "inner sizes of the dense FFNs in the order of their layers, where they differ"},
    a.dense_sizes, {.low = 1, .written = !a.dense_sizes.empty()});
  v({"zero_experts", "experts that compute nothing, among which the router chooses, too"}, a.zero_experts,
    {.written = a.zero_experts > 0});
  v({"convolution", "short convolutions between two gates (LFM2)"}, a.convolution,
    {.written = a.convolution.taps > 0});
  v({"residual", "how blocks read what earlier ones wrote"}, a.residual,
    {.written = a.residual.kind != Residual::Kind::kPlain});
  v({"mixers", "a letter per layer of two blocks, those of pattern for mixers, . none"}, a.mixers,
    {.written = !a.mixers.empty()});
  v({"ffns", "a letter per layer of two blocks: E experts, - dense FFN, . none"}, a.ffns,
    {.written = !a.ffns.empty()});
}

class Writer {
 public:
  template <class T>
  void operator()(const Key& key, const T& value, const Row& row = {}) {
    if (!row.written) return;
    if constexpr (std::is_enum_v<T>) {
      object[key.name] = names_of(value)[static_cast<std::size_t>(value)];
    } else if constexpr (requires(Writer & w) { visit(w, value); }) {
      Writer part;
      visit(part, value);
      object[key.name] = std::move(part.object);
    } else {
      object[key.name] = value;
    }
  }
  static bool when(bool holds, const char* = nullptr) { return holds; }

  ordered_json object;
};

class Reader {
 public:
  // `based`: the visited model is whole already.
  explicit Reader(const JsonNode& node, bool based = false) : in(node), based_(based) {}

  template <class T>
  void operator()(const Key& key, T& value, const Row& row = {}) {
    if (const auto node = row.needed && !based_ ? in.at(key.name) : in.find(key.name))
      read(*node, value, row);
    else if constexpr (std::same_as<T, std::int64_t>)
      value = row.usual < 0 ? value : row.usual;
  }
  bool when(bool holds, const char* key = nullptr) { return key ? in.find(key).has_value() : holds; }

  static void read(const JsonNode& node, std::int64_t& value, const Row& row) {
    value = node.integer(row.low, row.high);
  }
  static void read(const JsonNode& node, std::vector<std::int64_t>& value, const Row& row) {
    value = node.integers(row.low, row.high);
  }
  static void read(const JsonNode& node, bool& value, const Row&) { value = node.boolean(); }
  static void read(const JsonNode& node, std::string& value, const Row&) { value = node.string(); }
  template <class T>
  static void read(const JsonNode& node, T& value, const Row&) {
    if constexpr (std::is_enum_v<T>) {
      const auto names = names_of(value);
      const auto at = std::ranges::find(names, node.string());
      if (at == names.end())
        node.fail(in_quotes(node.string()),
                  fmt::format("\"{}\" or \"{}\"", fmt::join(names.begin(), names.end() - 1, "\", \""),
                              names.back()));
      value = static_cast<T>(at - names.begin());
    } else {
      value = {};
      Reader part(node);
      visit(part, value);
      part.in.finish();
    }
  }

  JsonObject in;

 private:
  bool based_;
};

// Reads one value of the whole model.
struct Changer {
  std::string_view key;
  const JsonNode& value;

  template <class T>
  void operator()(const Key& at, T& old, const Row& row = {}) {
    if (key == at.name) Reader::read(value, old, row);
  }
};

struct Sizes {
  std::vector<ModelSize> all;

  template <class T>
  void operator()(const Key& key, const T&, const Row& = {}) {
    if constexpr (std::same_as<T, std::int64_t> || std::same_as<T, bool>)
      all.push_back({key.name, std::same_as<T, bool>, key.about});
  }
};

class SchemaWriter {
 public:
  explicit SchemaWriter(ordered_json& defs) : defs_(defs) {}

  template <class T>
  void operator()(const Key& key, const T& value, const Row& row = {}) {
    ordered_json schema = of(value, row);
    if (*key.about != '\0') schema["description"] = key.about;
    object["properties"][key.name] = std::move(schema);
    if (row.needed && !apart_) object["required"].push_back(key.name);
  }
  // A value of some models alone is required by none.
  bool when(bool, const char* = nullptr) { return apart_ = true; }

  ordered_json object{{"type", "object"}};

 private:
  template <class T>
  ordered_json of(const T& value, const Row& row) {
    if constexpr (std::same_as<T, bool>) {
      return {{"type", "boolean"}};
    } else if constexpr (std::same_as<T, std::string>) {
      return {{"type", "string"}};
    } else if constexpr (std::same_as<T, std::int64_t>) {
      if (row.high == kMaxModelSize && row.low < 2)
        return {{"$ref", row.low == 1 ? "#/$defs/count" : "#/$defs/whole"}};
      return {{"type", "integer"}, {"minimum", row.low}, {"maximum", row.high}};
    } else if constexpr (std::same_as<T, std::vector<std::int64_t>>) {
      return {{"type", "array"}, {"items", of(std::int64_t{0}, row)}};
    } else if constexpr (std::is_enum_v<T>) {
      return {{"enum", names_of(value)}};
    } else {
      SchemaWriter part(defs_);
      visit(part, value);
      part.object["additionalProperties"] = false;
      if constexpr (!std::same_as<T, Attention>) return part.object;
      defs_["attention"] = std::move(part.object);
      return {{"$ref", "#/$defs/attention"}};
    }
  }

  ordered_json& defs_;
  bool apart_ = false;
};

// A shortened model is the beginning of the whole one.
void shorten(Architecture& a) {
  for (std::string* letters : {&a.mixers, &a.ffns})
    if (letters->size() > static_cast<std::size_t>(a.layers))
      letters->resize(static_cast<std::size_t>(a.layers));
  if (a.experts == 0) a.dense_layers = std::min(a.dense_layers, a.layers);
}

}  // namespace

Architecture parse_own(const JsonNode& node, const std::string& name, const Architecture* base) {
  Architecture a = base ? *base : Architecture();
  const std::int64_t whole = a.layers;
  if (!base) a.layers = 1;
  a.name = !name.empty() ? name : base ? a.name : "custom";
  a.source = node.place().file;
  Reader reader(node, base != nullptr);
  JsonObject& o = reader.in;
  o.find("base");
  visit(reader, a);
  o.finish();
  // A dense model gives no more about experts; redundant values (to_json) are ignored.
  if (a.experts == 0) {
    for (const char* key : {"topk", "expert_ffn"})
      if (const auto value = o.find(key); value && value->integer() > 0)
        value->fail(value->describe(), "0 in a model without experts");
    a.topk = a.expert_ffn = 0;
  }
  if (base && a.mixers == base->mixers && a.ffns == base->ffns && a.dense_layers == base->dense_layers)
    shorten(a);
  // A shortened model is trained without its multi-token-prediction layers, unless they are given.
  if (a.layers < whole && !o.find("mtp_layers")) a.mtp_layers = 0;
  if (a.linear.key_heads == 0) a.linear.key_heads = a.linear.value_heads;
  fill_heads(a.attention, a.hidden);
  if (a.windowed.heads > 0) fill_heads(a.windowed, a.hidden);
  set_pattern(a, a.pattern, node);
  check_consistent(a, node);
  return a;
}

ordered_json model_object(const Architecture& model) {
  Writer writer;
  visit(writer, model);
  return std::move(writer.object);
}

ordered_json to_json(const Architecture& model) {
  ordered_json object = model_object(model);
  const auto names = Architecture::names();
  if (std::ranges::find(names, model.name) != names.end() &&
      model_object(Architecture::load(model.name)) == object)
    return model.name;
  return object;
}

std::span<const ModelSize> model_sizes() {
  static const std::vector<ModelSize> sizes = [] {
    Sizes list;
    const Architecture model;
    visit(list, model);
    return list.all;
  }();
  return sizes;
}

void change_model(Architecture& a, std::string_view key, const JsonNode& value) {
  if (key == "layers" && !a.pattern.empty())
    value.fail(value.describe(), fmt::format("another pattern: the layers of {} are its letters", a.name));
  if (a.experts == 0 && (key == "topk" || key == "expert_ffn"))
    value.fail(value.describe(), "a model with experts");
  Changer changer{key, value};
  visit(changer, a);
  if (a.experts == 0) a.topk = a.expert_ffn = 0;
  if (key == "layers") shorten(a);
  check_consistent(a, value);
}

ordered_json model_schema() {
  ordered_json defs = ordered_json::object();
  SchemaWriter writer(defs);
  const Architecture model;
  visit(writer, model);
  ordered_json properties{
      {"base", {{"type", "string"}, {"description", "a built-in model that the rest changes"}}}};
  properties.update(writer.object["properties"]);
  properties["pattern"]["pattern"] = fmt::format("^[{}E-]*$", kMixerLetters);
  properties["mixers"]["pattern"] = fmt::format("^[{}.]*$", kMixerLetters);
  properties["ffns"]["pattern"] = "^[E.-]*$";
  for (const auto& [name, low] : {std::pair("count", 1), std::pair("whole", 0)})
    defs[name] = {{"type", "integer"}, {"minimum", low}, {"maximum", kMaxModelSize}};
  ordered_json schema = ordered_json::parse(R"({
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "a model file, and \"model\" of a scenario",
    "description": "own form; a Hugging Face config.json (with hidden_size or d_model) is accepted in its place",
    "if": {"anyOf": [{"required": ["hidden_size"]}, {"required": ["d_model"]}, {"required": ["text_config"]}]},
    "then": {"type": "object"},
    "else": {"type": "object", "properties": null, "additionalProperties": false, "anyOf": [
      {"required": ["base"]},
      {"required": ["hidden", "experts", "topk", "expert_ffn"]},
      {"required": ["hidden", "experts", "dense_ffn"], "properties": {"experts": {"const": 0}}}]}})");
  schema["else"]["properties"] = std::move(properties);
  schema["$defs"] = std::move(defs);
  return schema;
}

}  // namespace moesim::models
