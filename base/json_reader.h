// JSON input checked while reading: every value has its line, and an unknown key is an error that names the
// key, its line and the closest known key. nlohmann/json does the parsing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/input_error.h"

namespace moesim {

// Limits on JSON input, which bound its memory (24 bytes per value).
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonValues = std::size_t{1} << 26;
inline constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{1} << 30;

namespace detail {
struct JsonValue;
struct JsonSource;
}  // namespace detail

// A view of one value inside a document; cheap to copy, keeps the document alive.
// Typed reads throw InputError "file:line: found X, expected Y" when the value is of another type or out of
// range.
class JsonNode {
 public:
  // Throws InputError at the offending line for text that is not JSON, that nests deeper than kMaxJsonDepth
  // levels, that has more than kMaxJsonValues values or one of more than kMaxJsonToken characters, or that
  // repeats a key. `file` is used in messages only.
  static JsonNode parse(std::string_view text, std::string file);
  static JsonNode read(const std::filesystem::path& path);
  // Wraps a value from the program (command line, defaults); messages then name `origin` without a line.
  static JsonNode from_json(const nlohmann::json& value, std::string origin);

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_number() const;
  bool is_integer() const;
  bool is_boolean() const;
  bool is_null() const;

  std::string string() const;  // on one line
  bool boolean() const;
  double number(double low = std::numeric_limits<double>::lowest(),
                double high = std::numeric_limits<double>::max()) const;
  std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;

  // Returns all items of an array of integers, each within [low, high]; one pass without a node per item.
  std::vector<std::int64_t> integers(std::int64_t low, std::int64_t high) const;

  std::size_t size() const;                                  // of an array or object, 0 otherwise
  std::vector<JsonNode> items() const;                       // of an array
  std::vector<std::string> keys() const;                     // of an object, in file order
  std::optional<JsonNode> find(std::string_view key) const;  // of an object

  // A dotted path for messages, e.g. "cluster.nic.bandwidth".
  const std::string& path() const { return path_; }
  SourcePlace place() const;
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;
  [[noreturn]] void fail(const std::string& message) const;

  // Describes the value for messages: "the string 'x'", "3", "an array".
  std::string describe() const;
  nlohmann::json to_json() const;

 private:
  JsonNode(std::shared_ptr<const detail::JsonSource> source, const detail::JsonValue* value, std::string path)
      : source_(std::move(source)), value_(value), path_(std::move(path)) {}

  std::shared_ptr<const detail::JsonSource> source_;
  const detail::JsonValue* value_;
  std::string path_;
};

// Parses the text to nlohmann's type with keys in file order, for results that are compared and rewritten.
// Throws as JsonNode::parse() does.
nlohmann::ordered_json parse_ordered(std::string_view text, const std::string& file);

// An object with checked keys: read each known key, then call finish().
class JsonObject {
 public:
  explicit JsonObject(JsonNode node);  // throws InputError unless node is an object

  JsonNode at(std::string_view key);                   // throws InputError when missing
  std::optional<JsonNode> find(std::string_view key);  // nullopt when missing or null

  double number(std::string_view key, double fallback, double low = std::numeric_limits<double>::lowest(),
                double high = std::numeric_limits<double>::max()) {
    const auto node = find(key);
    return node ? node->number(low, high) : fallback;
  }
  std::int64_t integer(std::string_view key, std::int64_t fallback,
                       std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    const auto node = find(key);
    return node ? node->integer(low, high) : fallback;
  }
  bool boolean(std::string_view key, bool fallback) {
    const auto node = find(key);
    return node ? node->boolean() : fallback;
  }
  std::string string(std::string_view key, const std::string& fallback) {
    const auto node = find(key);
    return node ? node->string() : fallback;
  }

  // Throws InputError for the first key that was not read.
  void finish() const;

  const JsonNode& node() const { return node_; }

 private:
  JsonNode node_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace moesim
