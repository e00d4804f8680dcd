#include "tools/moesim/show/columns.h"

namespace moesim::tools {

using nlohmann::ordered_json;

Help::Help(const char* what) : Help(what, ordered_json::object()) {}
Help::Help(const char* what, ordered_json more) : text(what), schema(std::move(more)) {}
Help::~Help() = default;

Head::Head(const char* head, int decimals, double scale) : name(head), digits(decimals), times(scale) {}
Head::Head(std::string head, std::function<std::string(double)> text)
    : name(std::move(head)), number(std::move(text)) {}
Head::Head(std::string head, std::function<std::string(const std::string&)> text)
    : name(std::move(head)), words(std::move(text)) {}

std::string Head::text(const ordered_json& value) const {
  if (value.is_null() || value.is_discarded()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return words ? words(value.get<std::string>()) : value.get<std::string>();
  if (!value.is_number()) return value.dump();
  const auto figure = value.get<double>();
  return number ? number(figure) : fmt::format("{:.{}f}", figure * times, digits);
}

AnyColumn::AnyColumn(std::string_view path_or_maybe, std::function<ordered_json(const void*)> read_row,
                     ordered_json type, const Help& help)
    : path(path_or_maybe), maybe(path.ends_with('?')), schema(std::move(type)), read(std::move(read_row)) {
  if (maybe) path.pop_back();
  if (!help.schema.is_null()) schema.update(help.schema);
  if (*help.text) schema["description"] = help.text;
}

ordered_json absent() { return ordered_json::value_t::discarded; }

ordered_json AnyColumns::json_of_row(const void* row) const {
  ordered_json out = ordered_json::object();
  for (const AnyColumn& column : columns_) {
    if (column.path.empty()) continue;
    if (ordered_json value = column.read(row); !value.is_discarded()) out[column.path] = std::move(value);
  }
  return out;
}

ordered_json AnyColumns::schema() const {
  ordered_json schema{
      {"type", "object"}, {"required", ordered_json::array()}, {"properties", ordered_json::object()}};
  for (const AnyColumn& column : columns_) {
    if (column.path.empty()) continue;
    if (!column.maybe) schema["required"].push_back(column.path);
    schema["properties"][column.path] = column.schema;
  }
  schema["additionalProperties"] = false;
  if (!either_.empty()) schema["anyOf"] = either_;
  return schema;
}

std::vector<Table::Column> AnyColumns::heads(std::vector<Table::Column> heads) const {
  for (const AnyColumn& column : columns_)
    if (!column.head.name.empty()) heads.push_back({column.head.name, column.align});
  return heads;
}

std::vector<std::string> AnyColumns::cells_of_row(std::vector<std::string> cells, const void* row) const {
  for (const AnyColumn& column : columns_)
    if (!column.head.name.empty()) cells.push_back(column.head.text(column.read(row)));
  return cells;
}

void AnyColumns::append(const AnyColumns& others) {
  columns_.insert(columns_.end(), others.columns_.begin(), others.columns_.end());
  for (const ordered_json& one : others.either_) either_.push_back(one);
}

void AnyColumns::add_some(const AnyColumns& others, std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths)
    for (const AnyColumn& column : others.columns_)
      if (column.path == path) columns_.push_back(column);
}

void AnyColumns::remove(std::string_view path) {
  std::erase_if(columns_, [&](const AnyColumn& column) { return column.path == path; });
}

void AnyColumns::add_if(const AnyColumns& others, const std::function<bool(const void*)>& holds) {
  either_.push_back({{"required", others.schema()["required"]}});
  for (AnyColumn column : others.columns_) {
    column.maybe = true;
    column.read = [holds, read = std::move(column.read)](const void* row) {
      return holds(row) ? read(row) : absent();
    };
    columns_.push_back(std::move(column));
  }
}

}  // namespace moesim::tools
