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
  Help(const char* what = "");
  Help(const char* what, nlohmann::ordered_json more);
  ~Help();

  const char* text;
  nlohmann::ordered_json schema;
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
  Head(const char* head = "", int decimals = 0, double scale = 1);
  Head(std::string head, std::function<std::string(double)> text);
  Head(std::string head, std::function<std::string(const std::string&)> text);

  std::string text(const nlohmann::ordered_json& value) const;

  std::string name;
  int digits = 0;
  double times = 1;
  std::function<std::string(double)> number = {};
  std::function<std::string(const std::string&)> words = {};
};

// The part of a column that does not depend on the type of its rows. It is compiled once, not for each type.
struct AnyColumn {
  AnyColumn(std::string_view path_or_maybe, std::function<nlohmann::ordered_json(const void*)> read_row,
            nlohmann::ordered_json type, const Help& help);

  std::string path;
  bool maybe;  // whether it may be absent
  nlohmann::ordered_json schema;
  std::function<nlohmann::ordered_json(const void* row)> read;  // the figure, or absent()
  Head head = {};
  Table::Align align = Table::Align::kRight;
};

// The value of a figure that is not there, where null is one that is.
nlohmann::ordered_json absent();

class AnyColumns {
 public:
  nlohmann::ordered_json schema() const;
  // The columns of a table behind the given ones.
  std::vector<Table::Column> heads(std::vector<Table::Column> heads) const;

 protected:
  template <class Other>
  friend class Columns;

  nlohmann::ordered_json json_of_row(const void* row) const;
  std::vector<std::string> cells_of_row(std::vector<std::string> cells, const void* row) const;
  void append(const AnyColumns& others);
  void add_some(const AnyColumns& others, std::initializer_list<std::string_view> paths);
  void remove(std::string_view path);
  // Adds columns that are absent unless `holds`.
  void add_if(const AnyColumns& others, const std::function<bool(const void*)>& holds);

  std::vector<AnyColumn> columns_;
  nlohmann::ordered_json either_;  // what is required of each
};

// A figure of a T. A path that ends with "?" is absent where its value is none; others are null then. Without
// a path it is in tables alone.
template <class T>
class Column : public AnyColumn {
 public:
  template <class Get>
  requires std::invocable<const Get&, const T&> Column(std::string_view path, Get get, const Help& help = {},
                                                       const Head& of_tables = {})
      : Column(path, get, help,
               std::type_identity<std::remove_cvref_t<std::invoke_result_t<const Get&, const T&>>>()) {
    head = of_tables;
  }
  // An object of figures of the same T; with "?" absent unless it `holds`.
  Column(std::string_view path, const Columns<T>& group, const Help& help = {},
         const std::function<bool(const T&)>& holds = {})
      : AnyColumn(
            path,
            [group, holds](const void* row) {
              const T& of = *static_cast<const T*>(row);
              return !holds || holds(of) ? group.json(of) : absent();
            },
            group.schema(), help) {}

 private:
  template <class Get, class Value>
  Column(std::string_view path, Get get, const Help& help, std::type_identity<Value>)
      : AnyColumn(
            path,
            [get](const void* row) { return json_of<Value>(std::invoke(get, *static_cast<const T*>(row))); },
            schema_of<Value>(), help) {
    if (Text<Value> || std::same_as<Value, bool>) align = Table::Align::kLeft;
  }
  template <class Get, MaybeNone Value>
  Column(std::string_view path, Get get, const Help& help, std::type_identity<Value>)
      : AnyColumn(
            path,
            [get, none = path.ends_with('?') ? absent() : nlohmann::ordered_json()](const void* row) {
              const auto& value = std::invoke(get, *static_cast<const T*>(row));
              return value ? json_of(*value) : none;
            },
            path.ends_with('?') ? schema_of<std::remove_cvref_t<decltype(*std::declval<Value>())>>()
                                : schema_of<Value>(),
            help) {}
};

template <class T>
class Columns : public AnyColumns {
 public:
  Columns(std::initializer_list<Column<T>> columns = {}) { columns_.assign(columns.begin(), columns.end()); }

  // Adds the figures of a part of T, none where it has none.
  template <class Part, class Get>
  Columns& add(const Columns<Part>& others, Get get) {
    constexpr bool kMaybe = MaybeNone<std::remove_cvref_t<std::invoke_result_t<const Get&, const T&>>>;
    AnyColumns parts = others;
    for (AnyColumn& own : parts.columns_) {
      own.maybe = own.maybe || kMaybe;
      own.read = [read = std::move(own.read), get](const void* row) {
        const auto& part = std::invoke(get, *static_cast<const T*>(row));
        if constexpr (kMaybe)
          return part ? read(static_cast<const Part*>(&*part)) : absent();
        else
          return read(static_cast<const Part*>(&part));
      };
    }
    append(parts);
    return *this;
  }
  Columns& add(const Columns& others) {
    append(others);
    return *this;
  }
  // Adds a list of parts of T, of which it tells `figures`.
  template <class Part, class Get>
  Columns& list(std::string_view path, const Columns<Part>& figures, Get get, const Help& help = {}) {
    const auto read = [figures, get](const void* row) {
      auto array = nlohmann::ordered_json::array();
      for (const Part& part : std::invoke(get, *static_cast<const T*>(row)))
        array.push_back(figures.json(part));
      return array;
    };
    columns_.push_back({path, read, {{"type", "array"}, {"items", figures.schema()}}, help});
    return *this;
  }
  // Adds `figures` of a T that `holds`, `others` of any other.
  Columns& either(const std::function<bool(const T&)>& holds, const Columns& figures, const Columns& others) {
    const auto any = [holds](const void* row) { return holds(*static_cast<const T*>(row)); };
    add_if(figures, any);
    add_if(others, std::not_fn(any));
    return *this;
  }

  // Those with these paths, in their order.
  Columns some(std::initializer_list<std::string_view> paths) const {
    Columns chosen;
    chosen.add_some(*this, paths);
    return chosen;
  }
  Columns without(std::string_view path) const {
    Columns others = *this;
    others.remove(path);
    return others;
  }

  nlohmann::ordered_json json(const T& of) const { return json_of_row(&of); }
  // The cells of its row of a table behind the given ones.
  std::vector<std::string> cells(std::vector<std::string> cells, const T& of) const {
    return cells_of_row(std::move(cells), &of);
  }
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
