#include "models/workload/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace moesim::models {

bool says_nothing(const JsonNode& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.boolean();
  if (value.is_number()) return value.number() == 0;
  return (value.is_array() || value.is_object()) ? value.size() == 0
                                                 : value.is_string() && value.string().empty();
}

namespace {

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

std::optional<JsonNode> ModelConfig::find(Keys keys) const {
  for (const char* key : keys)
    if (auto value = node_.find(key); value && !value->is_null()) {
      asked_.insert(key);
      // Another spelling with the same value is redundant.
      for (const char* other : keys)
        if (const auto twin = node_.find(other);
            twin && one_size(*value) && one_size(*twin) == one_size(*value))
          asked_.insert(other);
      return value;
    }
  // DBRX nests them.
  for (const char* part : {"ffn_config", "attn_config"})
    if (const auto nested = node_.find(part); nested && nested->is_object()) {
      asked_.insert(part);
      for (const char* key : keys)
        if (auto value = nested->find(key); value && !value->is_null()) return value;
    }
  return std::nullopt;
}

std::optional<JsonNode> ModelConfig::said(Keys keys) const {
  auto value = find(keys);
  return value && !says_nothing(*value) ? value : std::nullopt;
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

}  // namespace moesim::models
