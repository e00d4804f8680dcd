// A third-party model file while it is read: sizes under publishers' key names, and the keys that were read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "base/json_reader.h"

namespace moesim::models {

inline constexpr std::int64_t kMaxModelSize = std::int64_t{1} << 31;

class ModelConfig {
 public:
  using Keys = std::initializer_list<const char*>;

  // `family`: for a part of a file that names none of its own.
  explicit ModelConfig(JsonNode node, std::string family = "");

  const JsonNode& node() const { return node_; }
  const std::string& family() const { return family_; }  // "model_type", or "hugging-face"

  // Returns the first of several spellings that is present and not null.
  std::optional<JsonNode> find(Keys keys) const;
  // Likewise, but only a value other than null, false, 0 or empty.
  std::optional<JsonNode> said(Keys keys) const;
  bool has(Keys keys) const { return find(keys).has_value(); }
  // Returns a size, or the common value of a list with one size per layer. Returns `fallback` where it is
  // missing; throws InputError where that is below `low`.
  std::int64_t size(Keys keys, std::int64_t fallback, std::int64_t low = 0) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key) const;  // "" for another type

  const std::set<std::string, std::less<>>& asked() const { return asked_; }

 private:
  JsonNode node_;
  std::string family_;
  mutable std::set<std::string, std::less<>> asked_;
};

// Returns whether a value is null, false, 0 or empty.
bool says_nothing(const JsonNode& value);

}  // namespace moesim::models
