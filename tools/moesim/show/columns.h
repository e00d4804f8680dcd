// The figures of a result, each described once: a column makes its JSON, its JSON schema and its cell of a table.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/moesim/show/output.h"

namespace moesim::tools {

// Names a type whose figures `Columns<T> columns_of(Of<T>)` lists, declared before it is used. Lists, maps,
// optionals and pointers of such types need no more.
template <class T>
struct Of {};

template <class T>
concept Listed = requires {
  columns_of(Of<T>{});
};
template <class T>
concept Text = std::convertible_to<T, std::string_view>;
template <class T>
concept MaybeNone = !Text<T> && requires(const T& value) {
  *value;
  static_cast<bool>(value);
};
template <class T>
concept JsonValue = std::same_as<T, nlohmann::ordered_json>;
template <class T>
concept MapOfNames = !JsonValue<T> && requires {
  typename T::mapped_type;
};
template <class T>
concept ListOfValues = !Text<T> && !JsonValue<T> && !MapOfNames<T> && requires(const T& value) {
  value.begin() != value.end();
};

template <class T>
class Columns;

template <class T>
nlohmann::ordered_json json_of(const T& value) {
  using nlohmann::ordered_json;
  if constexpr (Listed<T>) {
    static const auto kColumns = columns_of(Of<T>{});
    return kColumns.json(value);
  } else if constexpr (MaybeNone<T>) {
    return value ? json_of(*value) : ordered_json();
  } else if constexpr (MapOfNames<T>) {
    ordered_json object = ordered_json::object();
    for (const auto& [name, one] : value) object[name] = json_of(one);
    return object;
  } else if constexpr (ListOfValues<T>) {
    ordered_json array = ordered_json::array();
    for (const auto& one : value) array.push_back(json_of(one));
    return array;
  } else {
    return ordered_json(value);
  }
}

// The schema of json_of(): unknown keys are refused.
template <class T>
nlohmann::ordered_json schema_of() {
  using nlohmann::ordered_json;
  if constexpr (Listed<T>) {
    return columns_of(Of<T>{}).schema();
  } else if constexpr (MaybeNone<T>) {
    ordered_json schema = schema_of<std::remove_cvref_t<decltype(*std::declval<T>())>>();
    if (schema.contains("type")) schema["type"] = {schema["type"], "null"};
    return schema;
  } else if constexpr (MapOfNames<T>) {
    return {{"type", "object"}, {"additionalProperties", schema_of<typename T::mapped_type>()}};
  } else if constexpr (ListOfValues<T>) {
    return {{"type", "array"},
            {"items", schema_of<std::remove_cvref_t<decltype(*std::declval<T>().begin())>>()}};
  } else if constexpr (JsonValue<T>) {
    return ordered_json::object();
  } else {
    return {{"type", std::same_as<T, bool>    ? "boolean"
                     : std::integral<T>       ? "integer"
                     : std::floating_point<T> ? "number"
                                              : "string"}};
  }
}

// What a figure means, where its path does not say it, and what its schema says beside its type.
struct Help {
  Help() = default;
  Help(const char* what) : text(what) {}
  Help(const char* what, nlohmann::ordered_json more) : text(what), schema(std::move(more)) {}

  std::string text;
  nlohmann::ordered_json schema = nlohmann::ordered_json::object();
};

// The help of a text that is one of `names`.
inline Help one_of(std::initializer_list<const char*> names, const char* what = "") {
  return {what, {{"enum", std::vector<std::string>(names.begin(), names.end())}}};
}

// The help of what another schema says.
inline Help as_in(const char* schema, const char* what = "") { return {what, {{"$ref", schema}}}; }

// How a table shows a figure: the head of its column, and its decimals and what it is multiplied with, or a
// function that shows it. Without a name it is in no table; what is none is "-".
struct Head {
  Head() = default;
  Head(const char* head, int decimals = 0, double scale = 1) : name(head), digits(decimals), times(scale) {}
  Head(std::string head, std::function<std::string(double)> text)
      : name(std::move(head)), number(std::move(text)) {}
  Head(std::string head, std::function<std::string(const std::string&)> text)
      : name(std::move(head)), words(std::move(text)) {}

  template <class Value>
  std::string text(const Value& value) const {
    if constexpr (Text<Value>)
      return words ? words(std::string(value)) : std::string(std::string_view(value));
    else if constexpr (std::same_as<Value, bool>)
      return value ? "yes" : "no";
    else if constexpr (std::is_arithmetic_v<Value>)
      return number ? number(static_cast<double>(value))
                    : fmt::format("{:.{}f}", static_cast<double>(value) * times, digits);
    else if constexpr (MaybeNone<Value>)
      return value ? text(*value) : "-";
    else
      return json_of(value).dump();
  }

  std::string name;
  int digits = 0;
  double times = 1;
  std::function<std::string(double)> number = {};
  std::function<std::string(const std::string&)> words = {};
};

// A figure of a T. A path that ends with "?" is absent where its value is none; others are null then. Without
// a path it is in tables alone.
template <class T>
class Column {
 public:
  template <class Get>
  requires std::invocable<const Get&, const T&> Column(std::string_view path, Get get, const Help& help = {},
                                                       const Head& head = {})
      : Column(path) {
    using Value = std::remove_cvref_t<std::invoke_result_t<const Get&, const T&>>;
    if constexpr (MaybeNone<Value>)
      if (maybe_) {
        write_ = [path = path_, get](nlohmann::ordered_json& out, const T& of) {
          if (const auto& value = std::invoke(get, of)) out[path] = json_of(*value);
        };
        describe(schema_of<std::remove_cvref_t<decltype(*std::declval<Value>())>>(), help);
        return;
      }
    write_ = [path = path_, get](nlohmann::ordered_json& out, const T& of) {
      if (!path.empty()) out[path] = json_of<Value>(std::invoke(get, of));
    };
    describe(schema_of<Value>(), help);
    const bool left = Text<Value> || std::same_as<Value, bool>;
    head_ = {head.name, left ? Table::Align::kLeft : Table::Align::kRight};
    cell_ = [get, head](const T& of) { return head.text<Value>(std::invoke(get, of)); };
  }
  // An object of figures of the same T; with "?" absent unless it `holds`.
  Column(std::string_view path, Columns<T> group, const Help& help = {},
         std::function<bool(const T&)> holds = {})
      : Column(path) {
    describe(group.schema(), help);
    write_ = [path = path_, group = std::move(group), holds = std::move(holds)](nlohmann::ordered_json& out,
                                                                                const T& of) {
      if (!holds || holds(of)) out[path] = group.json(of);
    };
  }

 private:
  template <class Other>
  friend class Columns;

  explicit Column(std::string_view path) : path_(path), maybe_(path.ends_with('?')) {
    if (maybe_) path_.pop_back();
  }

  void describe(nlohmann::ordered_json schema, const Help& help) {
    if (!help.schema.is_null()) schema.update(help.schema);
    if (!help.text.empty()) schema["description"] = help.text;
    schema_ = std::move(schema);
  }

  std::string path_;
  bool maybe_;
  nlohmann::ordered_json schema_;
  std::function<void(nlohmann::ordered_json&, const T&)> write_;
  Table::Column head_;
  std::function<std::string(const T&)> cell_;
};

template <class T>
class Columns {
 public:
  Columns(std::initializer_list<Column<T>> columns = {}) : columns_(columns) {}

  // Adds the figures of a part of T, none where it has none.
  template <class Part, class Get>
  Columns& add(const Columns<Part>& others, Get get) {
    constexpr bool kMaybe = MaybeNone<std::remove_cvref_t<std::invoke_result_t<const Get&, const T&>>>;
    for (const Column<Part>& other : others.columns_) {
      Column<T> own(other.path_);
      own.maybe_ = other.maybe_ || kMaybe;
      own.schema_ = other.schema_;
      own.head_ = other.head_;
      own.write_ = [write = other.write_, get](nlohmann::ordered_json& out, const T& of) {
        if constexpr (!kMaybe)
          write(out, std::invoke(get, of));
        else if (const auto& part = std::invoke(get, of))
          write(out, *part);
      };
      if constexpr (!kMaybe)
        own.cell_ = [cell = other.cell_, get](const T& of) { return cell(std::invoke(get, of)); };
      columns_.push_back(std::move(own));
    }
    for (const auto& one : others.either_) either_.push_back(one);
    return *this;
  }
  Columns& add(const Columns& others) { return add(others, std::identity{}); }
  // Adds a list of parts of T, of which it tells `figures`.
  template <class Part, class Get>
  Columns& list(std::string_view path, Columns<Part> figures, Get get, const Help& help = {}) {
    Column<T> own(path);
    own.describe({{"type", "array"}, {"items", figures.schema()}}, help);
    own.write_ = [path = own.path_, figures = std::move(figures), get](nlohmann::ordered_json& out,
                                                                       const T& of) {
      auto& array = out[path] = nlohmann::ordered_json::array();
      for (const Part& part : std::invoke(get, of)) array.push_back(figures.json(part));
    };
    columns_.push_back(std::move(own));
    return *this;
  }

  // Adds `figures` of a T that `holds`, `others` of any other.
  Columns& either(const std::function<bool(const T&)>& holds, Columns figures, Columns others) {
    for (const bool wanted : {true, false}) {
      Columns& part = wanted ? figures : others;
      either_.push_back({{"required", part.schema()["required"]}});
      for (Column<T>& column : part.columns_) {
        column.maybe_ = true;
        column.write_ = [=, write = std::move(column.write_)](nlohmann::ordered_json& out, const T& of) {
          if (holds(of) == wanted) write(out, of);
        };
        columns_.push_back(std::move(column));
      }
    }
    return *this;
  }

  // Those with these paths, in their order.
  Columns some(std::initializer_list<std::string_view> paths) const {
    Columns chosen;
    for (const std::string_view path : paths)
      for (const Column<T>& column : columns_)
        if (column.path_ == path) chosen.columns_.push_back(column);
    return chosen;
  }

  Columns without(std::string_view path) const {
    Columns others = *this;
    std::erase_if(others.columns_, [&](const Column<T>& column) { return column.path_ == path; });
    return others;
  }

  nlohmann::ordered_json json(const T& of) const {
    nlohmann::ordered_json out = nlohmann::ordered_json::object();
    for (const Column<T>& column : columns_) column.write_(out, of);
    return out;
  }

  nlohmann::ordered_json schema() const {
    nlohmann::ordered_json schema{{"type", "object"},
                                  {"required", nlohmann::ordered_json::array()},
                                  {"properties", nlohmann::ordered_json::object()}};
    for (const Column<T>& column : columns_) {
      if (column.path_.empty()) continue;
      if (!column.maybe_) schema["required"].push_back(column.path_);
      schema["properties"][column.path_] = column.schema_;
    }
    schema["additionalProperties"] = false;
    if (!either_.empty()) schema["anyOf"] = either_;
    return schema;
  }

  // The columns of a table behind the given ones, and their cells.
  std::vector<Table::Column> heads(std::vector<Table::Column> heads) const {
    for (const Column<T>& column : columns_)
      if (!column.head_.name.empty()) heads.push_back(column.head_);
    return heads;
  }
  std::vector<std::string> cells(std::vector<std::string> cells, const T& of) const {
    for (const Column<T>& column : columns_)
      if (!column.head_.name.empty()) cells.push_back(column.cell_(of));
    return cells;
  }

 private:
  template <class Other>
  friend class Columns;

  std::vector<Column<T>> columns_;
  nlohmann::ordered_json either_;  // what is required of each
};

template <class Row>
Table table_of(const Columns<Row>& columns, const std::vector<Row>& rows) {
  Table table(columns.heads({}));
  for (const Row& row : rows) table.row(columns.cells({}, row));
  return table;
}
template <class Row>
Table table_of(const std::vector<Row>& rows) {
  return table_of(columns_of(Of<Row>{}), rows);
}

// A value that is there on a condition.
template <class Value>
std::optional<Value> where(bool holds, Value value) {
  return holds ? std::optional<Value>(std::move(value)) : std::nullopt;
}

// Prints a result of `verb`: its figures behind those that every result has.
void print_result(std::string_view verb, const nlohmann::ordered_json& inputs,
                  const nlohmann::ordered_json& figures, const std::vector<std::string>& warnings = {});

}  // namespace moesim::tools
