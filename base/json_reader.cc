#include "base/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/json_text.h"
#include "base/text.h"

namespace moesim {

namespace detail {

struct JsonObjectValue;

// Kept as small as possible: a file of a gigabyte may contain half a billion of them.
struct JsonValue {
  using Items = std::vector<JsonValue>;
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::unique_ptr<std::string>,
               std::unique_ptr<Items>, std::unique_ptr<JsonObjectValue>>
      value{nullptr};
  std::uint32_t line = 0;

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  bool boolean() const { return *get<bool>(); }
  std::int64_t integer() const { return *get<std::int64_t>(); }
  double number() const { return *get<double>(); }
  const std::string& string() const { return **get<std::unique_ptr<std::string>>(); }
  const JsonObjectValue* object() const {
    const auto* held = get<std::unique_ptr<JsonObjectValue>>();
    return held ? held->get() : nullptr;
  }
  const Items* array() const {
    const auto* held = get<std::unique_ptr<Items>>();
    return held ? held->get() : nullptr;
  }
  // Items of an array or object; null: it is neither.
  const Items* items() const;
  Items* items();
};

struct JsonObjectValue {
  std::vector<std::string> keys;  // in file order, parallel to items
  JsonValue::Items items;
  std::vector<std::uint32_t> by_name;  // indices of the keys, sorted by name

  void index() {
    by_name.resize(keys.size());
    std::iota(by_name.begin(), by_name.end(), 0U);
    std::sort(by_name.begin(), by_name.end(),
              [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
  }
  const JsonValue* find(std::string_view key) const {
    const auto at = std::lower_bound(by_name.begin(), by_name.end(), key,
                                     [&](std::uint32_t i, std::string_view k) { return keys[i] < k; });
    return at != by_name.end() && keys[*at] == key ? &items[*at] : nullptr;
  }
};

const JsonValue::Items* JsonValue::items() const {
  if (const JsonObjectValue* held = object()) return &held->items;
  return array();
}
JsonValue::Items* JsonValue::items() { return const_cast<Items*>(std::as_const(*this).items()); }

struct JsonSource {
  std::string file;
  JsonValue root;
};

namespace {

using Type = nlohmann::json::value_t;

class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(JsonSource& source, const char* begin, const char** reached)
      : source_(source), counted_to_(begin), reached_(reached) {}

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return put(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return number_float(static_cast<double>(value), {});
    return put(static_cast<std::int64_t>(value)) != nullptr;
  }
  bool number_float(number_float_t value, const string_t&) override { return put(value) != nullptr; }
  bool string(string_t& value) override {
    return put(std::make_unique<std::string>(std::move(value))) != nullptr;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(std::make_unique<JsonObjectValue>()); }
  bool start_array(std::size_t) override { return open(std::make_unique<JsonValue::Items>()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const long line = current_line();
    if (name.find('\n') != std::string::npos)
      throw InputError(SourcePlace{source_.file, line}, "key " + in_quotes(name) + " of several lines",
                       "one line");
    if (!seen_.back().insert(name).second)
      throw InputError(SourcePlace{source_.file, line}, "key " + in_quotes(name) + " twice", "each key once");
    (*std::get_if<std::unique_ptr<JsonObjectValue>>(&open_.back()->value))->keys.push_back(std::move(name));
    key_line_ = line;
    return true;
  }
  [[noreturn]] void too_long() {
    throw InputError(SourcePlace{source_.file, current_line()},
                     fmt::format("a text or number of more than {} characters", kMaxJsonToken), "fewer");
  }
  bool parse_error(std::size_t, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    std::string why = error.what();
    if (const auto at = why.find(": "); at != std::string::npos) why = why.substr(at + 2);
    if (const auto at = why.find(" - "); at != std::string::npos) why = why.substr(at + 3);
    if (last_token.empty()) why = "end of file";
    constexpr std::size_t kLongest = 200;
    why = shortened(why, kLongest);
    throw InputError(SourcePlace{source_.file, current_line()}, "not JSON: " + why);
  }

 private:
  template <class T>
  JsonValue* put(T value) {
    if (++count_ > kMaxJsonValues)
      throw InputError(SourcePlace{source_.file, current_line()},
                       fmt::format("more than {} values in a JSON file", kMaxJsonValues), "fewer");
    JsonValue made;
    made.value = std::move(value);
    made.line = static_cast<std::uint32_t>(key_line_ > 0 ? std::exchange(key_line_, 0) : current_line());
    if (open_.empty()) {
      source_.root = std::move(made);
      return &source_.root;
    }
    JsonValue::Items& siblings = *open_.back()->items();
    siblings.push_back(std::move(made));
    return &siblings.back();
  }
  template <class T>
  bool open(T value) {
    if (open_.size() >= kMaxJsonDepth)
      throw InputError(SourcePlace{source_.file, current_line()},
                       fmt::format("JSON nested deeper than {} levels", kMaxJsonDepth), "less");
    // Parents grow only while their last child is open, so pointers on the stack stay valid.
    open_.push_back(put(std::move(value)));
    seen_.emplace_back();
    return true;
  }
  bool close() {
    if (auto* object = std::get_if<std::unique_ptr<JsonObjectValue>>(&open_.back()->value))
      (*object)->index();
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
  std::size_t count_ = 0;
  long line_ = 1;
  long key_line_ = 0;
  std::vector<JsonValue*> open_;
  std::vector<std::set<std::string>> seen_;
};

// Walks a text and records the position: nlohmann's lexer reports none.
struct TextSource {
  Builder* builder = nullptr;
  const char *at = nullptr, *end = nullptr;
  const char** reached = nullptr;

  bool done() const { return at == end; }
  const char& here() const { return *at; }
  void next() { *reached = ++at; }
  [[noreturn]] void too_long() const { builder->too_long(); }
};

JsonValue copy_of(const nlohmann::json& value) {
  JsonValue out;
  switch (value.type()) {
    case Type::boolean:
      out.value = value.get<bool>();
      break;
    case Type::number_unsigned:
    case Type::number_integer:
      out.value = value.get<std::int64_t>();
      break;
    case Type::number_float:
      out.value = value.get<double>();
      break;
    case Type::string:
      out.value = std::make_unique<std::string>(value.get<std::string>());
      break;
    case Type::array: {
      auto items = std::make_unique<JsonValue::Items>();
      for (const auto& item : value) items->push_back(copy_of(item));
      out.value = std::move(items);
      break;
    }
    case Type::object: {
      auto object = std::make_unique<JsonObjectValue>();
      for (const auto& [key, item] : value.items()) {
        object->keys.push_back(key);
        object->items.push_back(copy_of(item));
      }
      object->index();
      out.value = std::move(object);
      break;
    }
    default:
      break;
  }
  return out;
}

nlohmann::json json_of(const JsonValue& value) {
  if (value.get<bool>()) return value.boolean();
  if (value.get<std::int64_t>()) return value.integer();
  if (value.get<double>()) return value.number();
  if (value.get<std::unique_ptr<std::string>>()) return value.string();
  if (const JsonValue::Items* items = value.array()) {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& item : *items) out.push_back(json_of(item));
    return out;
  }
  if (const JsonObjectValue* object = value.object()) {
    nlohmann::json out = nlohmann::json::object();
    for (std::size_t i = 0; i < object->keys.size(); ++i) out[object->keys[i]] = json_of(object->items[i]);
    return out;
  }
  return nullptr;
}

}  // namespace
}  // namespace detail

using detail::JsonSource;
using detail::JsonValue;
JsonNode JsonNode::parse(std::string_view text, std::string file) {
  auto source = std::make_shared<JsonSource>();
  source->file = std::move(file);
  check_utf8(text, source->file);  // nlohmann's lexer takes a zero for the end
  const char* reached = text.data();
  detail::Builder builder(*source, text.data(), &reached);
  using Chars = JsonChars<detail::TextSource>;
  nlohmann::json::sax_parse(
      Chars(detail::TextSource{&builder, text.data(), text.data() + text.size(), &reached}), Chars(),
      &builder);
  const JsonValue* root = &source->root;
  return JsonNode(std::move(source), root, "");
}

JsonNode JsonNode::read(const std::filesystem::path& path) {
  return parse(read_file(path, kMaxJsonBytes), path.string());
}

JsonNode JsonNode::from_json(const nlohmann::json& value, std::string origin) {
  auto source = std::make_shared<JsonSource>();
  source->file = std::move(origin);
  source->root = detail::copy_of(value);
  const JsonValue* root = &source->root;
  return JsonNode(std::move(source), root, "");
}

bool JsonNode::is_object() const { return value_->object() != nullptr; }
bool JsonNode::is_array() const { return value_->array() != nullptr; }
bool JsonNode::is_string() const { return value_->get<std::unique_ptr<std::string>>() != nullptr; }
bool JsonNode::is_integer() const { return value_->get<std::int64_t>() != nullptr; }
bool JsonNode::is_number() const { return is_integer() || value_->get<double>() != nullptr; }
bool JsonNode::is_boolean() const { return value_->get<bool>() != nullptr; }
bool JsonNode::is_null() const { return value_->get<std::nullptr_t>() != nullptr; }

std::string JsonNode::describe() const {
  if (is_object()) return "an object";
  if (is_array()) return "an array";
  if (is_string()) return in_quotes(value_->string());
  if (is_integer()) return std::to_string(value_->integer());
  if (is_number()) return fmt::format("{}", value_->number());
  if (is_boolean()) return value_->boolean() ? "true" : "false";
  return "null";
}

SourcePlace JsonNode::place() const { return {source_->file, static_cast<long>(value_->line), 0}; }

void JsonNode::fail(const std::string& found, const std::string& expected) const {
  throw InputError(place(), (path_.empty() ? "" : path_ + " ") + found, expected);
}

void JsonNode::fail(const std::string& message) const {
  throw InputError(place(), path_.empty() ? message : path_ + ": " + message);
}

std::string JsonNode::string() const {
  if (!is_string()) fail(describe(), "a string");
  // It would forge lines where it is printed.
  if (value_->string().find('\n') != std::string::npos) fail(describe() + " of several lines", "one line");
  return value_->string();
}

bool JsonNode::boolean() const {
  if (!is_boolean()) fail(describe(), "true or false");
  return value_->boolean();
}

namespace {

template <class Number>
std::string between(Number low, Number high) {
  return high == std::numeric_limits<Number>::max() ? fmt::format(" of at least {}", low)
                                                    : fmt::format(" from {} to {}", low, high);
}

}  // namespace

double JsonNode::number(double low, double high) const {
  if (!is_number()) fail(describe(), "a number");
  const double value = is_integer() ? static_cast<double>(value_->integer()) : value_->number();
  if (!(value >= low && value <= high)) fail(describe(), "a number" + between(low, high));
  return value;
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  std::int64_t value = 0;
  if (is_integer())
    value = value_->integer();
  else if (is_number() && std::abs(value_->number()) < 0x1p62 &&
           value_->number() == std::floor(value_->number()))
    value = static_cast<std::int64_t>(value_->number());  // 1e6 is an integer too
  else
    fail(describe(), "a whole number");
  if (value < low || value > high) fail(describe(), "a whole number" + between(low, high));
  return value;
}

std::vector<std::int64_t> JsonNode::integers(std::int64_t low, std::int64_t high) const {
  if (!is_array()) fail(describe(), "an array of whole numbers");
  const JsonValue::Items& items = *value_->array();
  std::vector<std::int64_t> out;
  out.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto* integer = items[i].get<std::int64_t>();
    if (integer && *integer >= low && *integer <= high) [[likely]]
      out.push_back(*integer);
    else
      out.push_back(JsonNode(source_, &items[i], fmt::format("{}[{}]", path_, i)).integer(low, high));
  }
  return out;
}

std::size_t JsonNode::size() const { return value_->items() ? value_->items()->size() : 0; }

std::vector<JsonNode> JsonNode::items() const {
  if (!is_array()) fail(describe(), "an array");
  const JsonValue::Items& items = *value_->array();
  std::vector<JsonNode> out;
  out.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    out.push_back(JsonNode(source_, &items[i], fmt::format("{}[{}]", path_, i)));
  return out;
}

std::vector<std::string> JsonNode::keys() const {
  if (!is_object()) fail(describe(), "an object");
  return value_->object()->keys;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!is_object()) fail(describe(), "an object");
  const JsonValue* found = value_->object()->find(key);
  if (!found) return std::nullopt;
  return JsonNode(source_, found, path_.empty() ? std::string(key) : path_ + "." + std::string(key));
}

nlohmann::json JsonNode::to_json() const { return detail::json_of(*value_); }

nlohmann::ordered_json parse_ordered(std::string_view text, const std::string& file) {
  JsonNode::parse(text, file);  // has the limits that nlohmann's own parser lacks
  return nlohmann::ordered_json::parse(text);
}

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

void JsonObject::finish() const {
  for (const std::string& key : node_.keys()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    const JsonNode value = *node_.find(key);
    throw InputError(value.place(), "unknown key " + in_quotes(value.path()) + did_you_mean(key, known));
  }
}

}  // namespace moesim
