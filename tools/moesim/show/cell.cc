#include "tools/moesim/show/cell.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

std::string cell_text(const Cell& cell, Digits digits) {
  struct Text {
    Digits digits;
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const {
      switch (digits.kind) {
        case Digits::Kind::kFixed:
          return fmt::format("{:.{}f}", value, digits.count);
        case Digits::Kind::kSignificant:
          return fmt::format("{:.{}g}", value, digits.count);
        case Digits::Kind::kShortest:
          break;
      }
      return fmt::format("{}", value);
    }
    std::string operator()(const std::string& value) const { return value; }
  };
  return std::visit(Text{digits}, cell);
}

Cell cell_of(std::string_view text) {
  if (text.empty()) return {};
  if (text == "true" || text == "false") return text == "true";
  if (const auto whole = parse_int(text)) return static_cast<std::int64_t>(*whole);
  if (const auto number = parse_number(text)) return *number;
  return std::string(text);
}

std::optional<double> number_of(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  return std::nullopt;
}

void each_value(const std::string& path, const nlohmann::ordered_json& value,
                const std::function<void(const std::string&, const nlohmann::ordered_json&)>& visit) {
  if (!value.is_object()) return visit(path, value);
  for (const auto& [key, one] : value.items())
    each_value(path.empty() ? key : fmt::format("{}.{}", path, key), one, visit);
}

std::string csv_of(const nlohmann::ordered_json& rows) {
  std::vector<Table::Column> columns;
  std::map<std::string, std::size_t> places;
  for (const bool errors : {false, true})
    for (const auto& row : rows)
      each_value("", row, [&](const std::string& path, const auto&) {
        if ((path == "error") == errors && places.emplace(path, columns.size()).second)
          columns.push_back({path});
      });
  Table table(columns);
  for (const auto& row : rows) {
    std::vector<std::string> cells(columns.size());
    each_value("", row, [&](const std::string& path, const auto& value) {
      if (!value.is_null())
        cells[places.at(path)] = value.is_string() ? value.template get<std::string>() : json_line(value);
    });
    table.row(std::move(cells));
  }
  return table.csv();
}

}  // namespace moesim::tools
