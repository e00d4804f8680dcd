#include "models/workload/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "models/hardware/embedded_profiles.h"

namespace moesim::models {

bool says_nothing(const JsonNode& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.boolean();
  if (value.is_number()) return value.number() == 0;
  return (value.is_array() || value.is_object()) ? value.size() == 0
                                                 : value.is_string() && value.string().empty();
}

namespace {

using Words = std::vector<std::string>;

// model_keys.json.
struct KeyTable {
  struct Family {
    Words names;  // "gemma*": all that start so
    std::map<std::string, JsonNode, std::less<>> defaults;
    Words unchanging;
    std::string refused;  // why
  };
  std::vector<std::pair<std::string, std::string>> refused;  // keys, and why
  std::set<std::string, std::less<>> unchanging;
  Words starts, ends;
  std::vector<Family> families;
  std::map<std::string, LayerNames, std::less<>> layers;

  // Returns the families' rows that hold for one.
  std::vector<std::reference_wrapper<const Family>> of(std::string_view family) const {
    std::vector<std::reference_wrapper<const Family>> rows;
    for (const Family& row : families)
      if (std::ranges::any_of(row.names, [family](std::string_view name) {
            return name.ends_with('*') ? family.starts_with(name.substr(0, name.size() - 1)) : family == name;
          }))
        rows.emplace_back(row);
    return rows;
  }
};

Words words_of(const std::optional<JsonNode>& list) {
  Words words;
  for (const JsonNode& item : list ? list->items() : std::vector<JsonNode>()) words.push_back(item.string());
  return words;
}

const KeyTable& key_table() {
  static const KeyTable table = [] {
    KeyTable t;
    JsonObject file(JsonNode::parse(embedded_table("model_keys"), "model_keys.json"));
    file.string("about", "");
    const JsonNode refused = file.at("refused");
    for (const std::string& key : refused.keys()) t.refused.emplace_back(key, refused.find(key)->string());
    for (std::string& key : words_of(file.at("unchanging"))) t.unchanging.insert(std::move(key));
    t.starts = words_of(file.at("unchanging_starts"));
    t.ends = words_of(file.at("unchanging_ends"));
    for (const JsonNode& node : file.at("families").items()) {
      JsonObject row(node);
      KeyTable::Family& family = t.families.emplace_back();
      family.names = words_of(row.at("families"));
      family.refused = row.string("refused", "");
      family.unchanging = words_of(row.find("unchanging"));
      if (const auto defaults = row.find("defaults"))
        for (const std::string& key : defaults->keys()) family.defaults.emplace(key, *defaults->find(key));
      row.finish();
    }
    const JsonNode classes = file.at("classes"), lists = file.at("layers");
    for (const std::string& name : classes.keys()) {
      KeyTable::Family& family = t.families.emplace_back();
      family.names = {name};
      if (name.ends_with("_text"))
        family.names.push_back(name.substr(0, name.size() - 5));  // the whole's name
      for (const JsonNode row = *classes.find(name); const std::string& key : row.keys())
        family.defaults.emplace(key, *row.find(key));
    }
    for (const std::string& list : lists.keys())
      for (const std::string& name : lists.find(list)->keys())
        t.layers[list][name] = lists.find(list)->find(name)->string().front();
    file.finish();
    return t;
  }();
  return table;
}

// Returns the number that a key gives once for all layers or for each one.
std::optional<std::int64_t> one_size(const JsonNode& value) {
  if (value.is_integer()) return value.integer();
  if (!value.is_array() || value.size() == 0) return std::nullopt;
  std::optional<std::int64_t> size;
  for (const JsonNode& item : value.items()) {
    if (!item.is_integer() || (size && *size != item.integer())) return std::nullopt;
    size = item.integer();
  }
  return size;
}

}  // namespace

ModelConfig::ModelConfig(JsonNode node, std::string family) : node_(std::move(node)) {
  family_ = text("model_type");
  if (family_.empty()) family_ = family.empty() ? "hugging-face" : std::move(family);
}

std::optional<ModelConfig> ModelConfig::part(const char* key) const {
  const auto value = find({key});
  if (!value || !value->is_object()) return std::nullopt;
  ModelConfig inner(*value);
  inner.prefix_ = prefix_ + key + ".";
  inner.asked_ = asked_;
  return inner;
}

std::optional<JsonNode> ModelConfig::find(Keys keys) const {
  for (const char* key : keys)
    if (auto value = node_.find(key); value && !value->is_null()) {
      ask(key);
      // Another spelling with the same value is redundant.
      for (const char* other : keys)
        if (const auto twin = node_.find(other);
            twin && one_size(*value) && one_size(*twin) == one_size(*value))
          ask(other);
      return value;
    }
  // DBRX and Mistral's params.json nest them.
  for (const char* outer : {"ffn_config", "attn_config", "moe"})
    if (const auto nested = node_.find(outer); nested && nested->is_object()) {
      ask(outer);
      for (const char* key : keys)
        if (auto value = nested->find(key); value && !value->is_null())
          return ask(fmt::format("{}.{}", outer, key)), value;
    }
  return usual(keys);
}

std::optional<JsonNode> ModelConfig::said(Keys keys) const {
  auto value = find(keys);
  return value && !says_nothing(*value) ? value : std::nullopt;
}

std::optional<JsonNode> ModelConfig::usual(Keys keys) const {
  for (const KeyTable::Family& row : key_table().of(family_))
    for (const char* key : keys)
      if (const auto at = row.defaults.find(key); at != row.defaults.end() && !node_.find(key))
        return at->second;
  return std::nullopt;
}

std::int64_t ModelConfig::size(Keys keys, std::int64_t fallback, std::int64_t low) const {
  const auto value = find(keys);
  if (!value) {
    if (fallback < low)
      node_.fail(fmt::format("no \"{}\"", *keys.begin()), "this key in a Hugging Face config");
    return fallback;
  }
  if (!value->is_array() || value->size() == 0) return value->integer(low, kMaxModelSize);
  const std::vector<std::int64_t> layers = value->integers(low, kMaxModelSize);
  if (std::ranges::adjacent_find(layers, std::not_equal_to<>()) != layers.end())
    value->fail("that differs from layer to layer", "the same in all layers");
  const auto all = find({"num_hidden_layers", "n_layers", "num_layers"});
  if (all && all->is_integer() && static_cast<std::int64_t>(layers.size()) < all->integer())
    value->fail(fmt::format("{} items for {} layers", layers.size(), all->integer()), "one for each layer");
  return layers.front();
}

bool ModelConfig::flag(const char* key, bool fallback) const {
  const auto value = find({key});
  return value && value->is_boolean() ? value->boolean() : fallback;
}

std::string ModelConfig::text(const char* key) const {
  const auto value = find({key});
  return value && value->is_string() ? value->string() : "";
}

const LayerNames& layer_names(std::string_view list) { return key_table().layers.find(list)->second; }

void refuse_other_models(const ModelConfig& config) {
  constexpr const char* kExpected = "a model without it: such layers are not modelled here";
  for (const auto& [key, because] : key_table().refused)
    if (const auto value = config.said({key.c_str()})) {
      if (!config.node().find(key))
        config.node().fail(fmt::format("no \"{}\", which {} takes for {} ({})", key, config.family(),
                                       value->describe(), because),
                           fmt::format("\"{}\": such layers are not modelled here", key));
      value->fail(fmt::format("({})", because), kExpected);
    }
  for (const KeyTable::Family& row : key_table().of(config.family()))
    if (!row.refused.empty())
      config.node()
          .find("model_type")
          .value_or(config.node())
          .fail(fmt::format("'{}' ({})", config.family(), row.refused), kExpected);
}

namespace {

void add_use(KeyUse& use, const JsonNode& config, const ModelConfig& whole, const std::string& prefix) {
  const KeyTable& table = key_table();
  for (const std::string& key : config.keys()) {
    const JsonNode value = *config.find(key);
    if (whole.asked().contains(prefix + key)) {
      if (value.is_object()) add_use(use, value, whole, prefix + key + ".");
      continue;
    }
    if (says_nothing(value)) continue;
    const bool irrelevant =
        table.unchanging.contains(key) ||
        std::ranges::any_of(table.starts, [&](const std::string& start) { return key.starts_with(start); }) ||
        std::ranges::any_of(table.ends, [&](const std::string& end) { return key.ends_with(end); }) ||
        std::ranges::any_of(table.of(whole.family()), [&](const KeyTable::Family& row) {
          return std::ranges::find(row.unchanging, key) != row.unchanging.end();
        });
    // Anything but a name and a fraction may be a size, a list of layers or a switch that adds weights.
    if (!irrelevant && !value.is_string() && (!value.is_number() || value.is_integer()))
      value.fail(fmt::format("({})", value.describe()),
                 "a key that is known here: it may bring weights. Take it out if it brings none");
    (irrelevant ? use.irrelevant : use.unknown).push_back(prefix + key);
  }
}

}  // namespace

KeyUse key_use(const ModelConfig& config) {
  KeyUse use;
  add_use(use, config.node(), config, "");
  return use;
}

}  // namespace moesim::models
