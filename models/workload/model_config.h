// A third-party model file while it is read: sizes under publishers' key names, the keys that were read, and
// what the others mean (model_keys.json). Keys that describe a model beyond Architecture are refused by name,
// and so is every unknown key that may add weights.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {

inline constexpr std::int64_t kMaxModelSize = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxModelLayers = std::int64_t{1} << 20;

class ModelConfig {
 public:
  using Keys = std::initializer_list<const char*>;

  // `family`: for a part of a file that names none of its own.
  explicit ModelConfig(JsonNode node, std::string family = "");
  // Returns the object under a key, whose read keys are noted as "key.inner".
  std::optional<ModelConfig> part(const char* key) const;

  const JsonNode& node() const { return node_; }
  const std::string& family() const { return family_; }  // "model_type", or "hugging-face"

  // Returns the first of several spellings that is present and not null; without any, the default of the family or
  // of its class in transformers (model_keys.json). Null is a value: of that spelling there is no default.
  std::optional<JsonNode> find(Keys keys) const;
  // Likewise, but only a value other than null, false, 0 or empty.
  std::optional<JsonNode> said(Keys keys) const;
  bool has(Keys keys) const { return find(keys).has_value(); }
  // Returns that default.
  std::optional<JsonNode> usual(Keys keys) const;
  // Returns a size, or the common value of a list with one size per layer. Where it is missing, returns `fallback`;
  // throws InputError where that is below `low`.
  std::int64_t size(Keys keys, std::int64_t fallback, std::int64_t low = 0) const;
  bool flag(const char* key, bool fallback) const;  // likewise
  std::string text(const char* key) const;          // "" for another type

  using KeySet = std::set<std::string, std::less<>>;
  const KeySet& asked() const { return *asked_; }

 private:
  void ask(std::string_view key) const { asked_->insert(prefix_ + std::string(key)); }

  JsonNode node_;
  std::string family_, prefix_;
  std::shared_ptr<KeySet> asked_ = std::make_shared<KeySet>();
};

// Returns whether a value is null, false, 0 or empty.
bool says_nothing(const JsonNode& value);

// Returns the letters of kinds of layers (Architecture::pattern) by their names in a list of layers.
using LayerNames = std::map<std::string, char, std::less<>>;
const LayerNames& layer_names(std::string_view list);

// Throws InputError at the first key of a Hugging Face config, or at its family, that changes the model's
// layers in a way that Architecture cannot describe. A key that is null, false, 0 or empty changes nothing.
void refuse_other_models(const ModelConfig& config);

// Unused keys with a value, in file order.
struct KeyUse {
  std::vector<std::string> irrelevant;  // known not to change sizes or layers
  std::vector<std::string> unknown;     // names and fractions, which add no weights
};
// Throws InputError at another key, also of a part, with a value that may add weights: a whole number, a switch that
// is on, a list or an object.
KeyUse key_use(const ModelConfig& config);

// Reads a Hugging Face config.json, or one with DeepSeek's own key names. Throws InputError at the place of
// keys that describe a model beyond Architecture, and for missing or impossible values. `name` as in
// Architecture::parse(); `family` of a part that names none of its own ("": none).
Architecture parse_config(const JsonNode& node, const std::string& name, const std::string& family);

}  // namespace moesim::models
