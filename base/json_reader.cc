#include "base/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/text.h"

namespace moesim {

namespace detail {

struct JsonValue {
  nlohmann::json::value_t type = nlohmann::json::value_t::null;
  long line = 0;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string string;
  std::vector<std::string> keys;  // of an object, beside items
  std::vector<JsonValue> items;   // of an array or object
};

struct JsonSource {
  std::string file;
  JsonValue root;
};

namespace {

using Type = nlohmann::json::value_t;

constexpr std::size_t kMaxDepth = 64;

// Walks the text for nlohmann's lexer and remembers how far it has read: the lexer reports no positions
// itself.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(JsonSource& source, const char* begin, const char** reached)
      : source_(source), counted_to_(begin), reached_(reached) {}

  bool null() override { return put({}, Type::null) != nullptr; }
  bool boolean(bool value) override {
    JsonValue made;
    made.boolean = value;
    return put(std::move(made), Type::boolean) != nullptr;
  }
  bool number_integer(number_integer_t value) override { return put_integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return number_float(static_cast<double>(value), {});
    return put_integer(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    JsonValue made;
    made.number = value;
    return put(std::move(made), Type::number_float) != nullptr;
  }
  bool string(string_t& value) override {
    JsonValue made;
    made.string = std::move(value);
    return put(std::move(made), Type::string) != nullptr;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Type::object); }
  bool start_array(std::size_t) override { return open(Type::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    JsonValue& object = *open_.back();
    const long line = current_line();
    if (!seen_.back().insert(name).second)
      throw InputError(SourcePlace{source_.file, line}, "key " + in_quotes(name) + " twice", "each key once");
    object.keys.push_back(std::move(name));
    key_line_ = line;
    return true;
  }
  bool parse_error(std::size_t, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    std::string why = error.what();
    if (const auto at = why.find(": "); at != std::string::npos) why = why.substr(at + 2);
    if (const auto at = why.find(" - "); at != std::string::npos) why = why.substr(at + 3);
    if (last_token.empty()) why = "end of file";
    throw InputError(SourcePlace{source_.file, current_line()}, "not JSON: " + why);
  }

 private:
  bool put_integer(std::int64_t value) {
    JsonValue made;
    made.integer = value;
    return put(std::move(made), Type::number_integer) != nullptr;
  }
  JsonValue* put(JsonValue&& value, Type type) {
    value.type = type;
    value.line = key_line_ > 0 ? std::exchange(key_line_, 0) : current_line();
    if (open_.empty()) {
      source_.root = std::move(value);
      return &source_.root;
    }
    open_.back()->items.push_back(std::move(value));
    return &open_.back()->items.back();
  }
  bool open(Type type) {
    if (open_.size() >= kMaxDepth)
      throw InputError(SourcePlace{source_.file, current_line()}, "JSON nested deeper than 64 levels",
                       "less");
    // Parents only grow while their last child is open, so the pointers on the stack stay valid.
    open_.push_back(put({}, type));
    seen_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    seen_.pop_back();
    return true;
  }
  // The lexer has read at most one character past the token.
  long current_line() {
    const char* end = *reached_ - 1;
    if (end > counted_to_) {
      line_ += std::count(counted_to_, end, '\n');
      counted_to_ = end;
    }
    return line_;
  }

  JsonSource& source_;
  const char* counted_to_;
  const char** reached_;
  long line_ = 1;
  long key_line_ = 0;
  std::vector<JsonValue*> open_;
  std::vector<std::set<std::string>> seen_;
};

JsonValue copy_of(const nlohmann::json& value) {
  JsonValue out;
  out.type = value.type();
  switch (value.type()) {
    case Type::boolean:
      out.boolean = value.get<bool>();
      break;
    case Type::number_unsigned:
    case Type::number_integer:
      out.type = Type::number_integer;
      out.integer = value.get<std::int64_t>();
      break;
    case Type::number_float:
      out.number = value.get<double>();
      break;
    case Type::string:
      out.string = value.get<std::string>();
      break;
    case Type::array:
      for (const auto& item : value) out.items.push_back(copy_of(item));
      break;
    case Type::object:
      for (const auto& [key, item] : value.items()) {
        out.keys.push_back(key);
        out.items.push_back(copy_of(item));
      }
      break;
    default:
      out.type = Type::null;
  }
  return out;
}

nlohmann::json json_of(const JsonValue& value) {
  switch (value.type) {
    case Type::boolean:
      return value.boolean;
    case Type::number_integer:
      return value.integer;
    case Type::number_float:
      return value.number;
    case Type::string:
      return value.string;
    case Type::array: {
      nlohmann::json out = nlohmann::json::array();
      for (const auto& item : value.items) out.push_back(json_of(item));
      return out;
    }
    case Type::object: {
      nlohmann::json out = nlohmann::json::object();
      for (std::size_t i = 0; i < value.keys.size(); ++i) out[value.keys[i]] = json_of(value.items[i]);
      return out;
    }
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace detail

using detail::JsonSource;
using detail::JsonValue;
using Type = nlohmann::json::value_t;

JsonNode JsonNode::parse(std::string_view text, std::string file) {
  auto source = std::make_shared<JsonSource>();
  source->file = std::move(file);
  const char* reached = text.data();
  detail::Builder builder(*source, text.data(), &reached);
  nlohmann::json::sax_parse(detail::CountingIterator(text.data(), &reached),
                            detail::CountingIterator(text.data() + text.size(), &reached), &builder);
  const JsonValue* root = &source->root;
  return JsonNode(std::move(source), root, "");
}

JsonNode JsonNode::read(const std::filesystem::path& path) {
  return parse(read_file(path, std::uint64_t{1} << 30), path.string());
}

JsonNode JsonNode::from_json(const nlohmann::json& value, std::string origin) {
  auto source = std::make_shared<JsonSource>();
  source->file = std::move(origin);
  source->root = detail::copy_of(value);
  const JsonValue* root = &source->root;
  return JsonNode(std::move(source), root, "");
}

bool JsonNode::is_object() const { return value_->type == Type::object; }
bool JsonNode::is_array() const { return value_->type == Type::array; }
bool JsonNode::is_string() const { return value_->type == Type::string; }
bool JsonNode::is_integer() const { return value_->type == Type::number_integer; }
bool JsonNode::is_number() const { return is_integer() || value_->type == Type::number_float; }
bool JsonNode::is_boolean() const { return value_->type == Type::boolean; }
bool JsonNode::is_null() const { return value_->type == Type::null; }

std::string JsonNode::describe() const {
  if (is_object()) return "an object";
  if (is_array()) return "an array";
  if (is_string()) return in_quotes(value_->string);
  if (is_integer()) return std::to_string(value_->integer);
  if (is_number()) return fmt::format("{}", value_->number);
  if (is_boolean()) return value_->boolean ? "true" : "false";
  return "null";
}

SourcePlace JsonNode::place() const { return {source_->file, value_->line, 0}; }

void JsonNode::fail(const std::string& found, const std::string& expected) const {
  throw InputError(place(), (path_.empty() ? "" : path_ + " ") + found, expected);
}

void JsonNode::fail(const std::string& message) const {
  throw InputError(place(), path_.empty() ? message : path_ + ": " + message);
}

std::string JsonNode::string() const {
  if (!is_string()) fail(describe(), "a string");
  return value_->string;
}

bool JsonNode::boolean() const {
  if (!is_boolean()) fail(describe(), "true or false");
  return value_->boolean;
}

double JsonNode::number(double low, double high) const {
  if (!is_number()) fail(describe(), "a number");
  const double value = is_integer() ? static_cast<double>(value_->integer) : value_->number;
  if (!(value >= low && value <= high)) {
    if (high == std::numeric_limits<double>::max())
      fail(describe(), fmt::format("a number of at least {}", low));
    fail(describe(), fmt::format("a number from {} to {}", low, high));
  }
  return value;
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  std::int64_t value = 0;
  if (is_integer())
    value = value_->integer;
  else if (is_number() && std::abs(value_->number) < 0x1p62 && value_->number == std::floor(value_->number))
    value = static_cast<std::int64_t>(value_->number);  // 1e6 is a whole number too
  else
    fail(describe(), "a whole number");
  if (value < low || value > high) {
    if (high == std::numeric_limits<std::int64_t>::max())
      fail(describe(), fmt::format("a whole number of at least {}", low));
    fail(describe(), fmt::format("a whole number from {} to {}", low, high));
  }
  return value;
}

std::vector<std::int64_t> JsonNode::integers(std::int64_t low, std::int64_t high) const {
  if (!is_array()) fail(describe(), "an array of whole numbers");
  std::vector<std::int64_t> out;
  out.reserve(value_->items.size());
  for (std::size_t i = 0; i < value_->items.size(); ++i) {
    const JsonValue& item = value_->items[i];
    if (item.type == Type::number_integer && item.integer >= low && item.integer <= high) [[likely]]
      out.push_back(item.integer);
    else
      out.push_back(JsonNode(source_, &item, fmt::format("{}[{}]", path_, i)).integer(low, high));
  }
  return out;
}

std::size_t JsonNode::size() const { return value_->items.size(); }

std::vector<JsonNode> JsonNode::items() const {
  if (!is_array()) fail(describe(), "an array");
  std::vector<JsonNode> out;
  out.reserve(value_->items.size());
  for (std::size_t i = 0; i < value_->items.size(); ++i)
    out.push_back(JsonNode(source_, &value_->items[i], fmt::format("{}[{}]", path_, i)));
  return out;
}

std::vector<std::string> JsonNode::keys() const {
  if (!is_object()) fail(describe(), "an object");
  return value_->keys;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!is_object()) fail(describe(), "an object");
  for (std::size_t i = 0; i < value_->keys.size(); ++i)
    if (value_->keys[i] == key)
      return JsonNode(source_, &value_->items[i],
                      path_.empty() ? std::string(key) : path_ + "." + std::string(key));
  return std::nullopt;
}

nlohmann::json JsonNode::to_json() const { return detail::json_of(*value_); }

JsonObject::JsonObject(JsonNode node) : node_(std::move(node)) {
  if (!node_.is_object()) node_.fail(node_.describe(), "an object");
}

JsonNode JsonObject::at(std::string_view key) {
  auto found = find(key);
  if (!found) node_.fail("no key '" + std::string(key) + "'", "one");
  return *found;
}

std::optional<JsonNode> JsonObject::find(std::string_view key) {
  known_.emplace(key);
  auto found = node_.find(key);
  if (found && found->is_null()) return std::nullopt;
  return found;
}

double JsonObject::number(std::string_view key, double fallback, double low, double high) {
  const auto node = find(key);
  return node ? node->number(low, high) : fallback;
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                                 std::int64_t high) {
  const auto node = find(key);
  return node ? node->integer(low, high) : fallback;
}

bool JsonObject::boolean(std::string_view key, bool fallback) {
  const auto node = find(key);
  return node ? node->boolean() : fallback;
}

std::string JsonObject::string(std::string_view key, const std::string& fallback) {
  const auto node = find(key);
  return node ? node->string() : fallback;
}

void JsonObject::finish() const {
  for (const std::string& key : node_.keys()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    const JsonNode value = *node_.find(key);
    throw InputError(value.place(), "unknown key " + in_quotes(value.path()) + did_you_mean(key, known));
  }
}

}  // namespace moesim
