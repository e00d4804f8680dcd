#include "tools/moesim/study/sweep_table.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/csv.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "base/text.h"

namespace moesim::tools {

namespace {

bool is_text(models::FieldType type) {
  return type == models::FieldType::kText || type == models::FieldType::kChoice;
}

// Returns a value of an axis, or a cell of a JSON line; other than numbers and flags it is `text`.
Cell cell_of_json(const nlohmann::ordered_json& json, const std::string& text) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  const bool fits = !json.is_number_unsigned() || json.get<std::uint64_t>() <= INT64_MAX;
  if (json.is_number() && fits) return json.get<std::int64_t>();
  return text;
}

std::string text_of(const nlohmann::ordered_json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

// Visits the figures of answers with their paths, and whether some answers lack them.
template <class Visit>
void each_figure(const std::string& before, const nlohmann::ordered_json& object, bool maybe,
                 const Visit& visit) {
  for (const auto& [key, schema] : object.at("properties").items()) {
    const bool absent =
        maybe || std::count(object.at("required").begin(), object.at("required").end(), key) == 0;
    if (schema.contains("properties"))
      each_figure(before + key + ".", schema, absent, visit);
    else
      visit(before + key, schema, absent);
  }
}

// How people see a figure, where not by its path.
const std::vector<SweepColumn> kShown = [] {
  using enum CellStyle;
  return std::vector<SweepColumn>{
      {"time_us.value", {}, "time", kTime},
      {"iteration_us.value", {}, "iteration", kTime, "{} an iteration"},
      {"exposed_comm_us.mean", {}, "transfer", kTime},
      {"straggler_wait_us.mean", {}, "wait", kTime},
      {"tokens_per_s_per_gpu", {}, "tokens/s/GPU", kWhole, "{} tokens/s/GPU"},
      {"mfu", {}, "MFU", kPercent},
      {"peak_memory_bytes.max", {}, "memory [GB]", kGigabytes},
      {"cost_per_million_tokens", {}, "per 10^6 tokens", kFour, "{} a million tokens"},
      {"cluster", {}, "machine"},
      {"gpus", {}, "GPUs", kWhole, "{} GPUs"},
      {"parallel.tp", {}, "TP", kWhole},
      {"parallel.pp", {}, "PP", kWhole},
      {"parallel.ep", {}, "EP", kWhole},
      {"days.value", {}, "days", kThree, "{} days"},
      {"cost.value", {}, "cost", kWhole}};
}();

Cells csv_row(std::string_view line, const std::vector<SweepColumn>& columns) {
  Cells cells;
  for (std::string& cell : csv_cells(line, {"row of a sweep"}))
    if (const std::size_t c = cells.size(); c < columns.size() && columns[c].text && !cell.empty())
      cells.emplace_back(std::move(cell));
    else
      cells.push_back(cell_of(cell));
  cells.resize(columns.size());
  return cells;
}

Cells json_row(std::string_view line, const std::vector<SweepColumn>& columns) {
  const auto object = nlohmann::ordered_json::parse(line);
  Cells cells;
  for (const SweepColumn& column : columns) {
    const auto found = object.find(column.name);
    if (found == object.end()) {
      cells.emplace_back();
      continue;
    }
    const std::string text = text_of(*found);
    cells.push_back(text.empty() ? Cell() : column.text ? Cell(text) : cell_of_json(*found, text));
  }
  return cells;
}

}  // namespace

std::vector<SweepColumn> columns_of(const nlohmann::ordered_json& answers, std::string_view paths) {
  std::vector<SweepColumn> all;
  for (const std::string_view named : split(paths, ',')) {
    const std::string_view path = named.substr(named.find('=') + 1);
    const auto shown = std::ranges::find(kShown, path, &SweepColumn::name);
    all.push_back(shown == kShown.end() ? SweepColumn{std::string(path)} : *shown);
    all.back().name = named.substr(0, named.find('='));
  }
  each_figure("", answers, false, [&](const std::string& path, const auto& schema, bool maybe) {
    const auto column = std::ranges::find(all, path, &SweepColumn::path);
    if (column == all.end()) return;
    const auto type = schema.value("type", nlohmann::ordered_json());
    column->schema = schema;
    column->text = type == "string" || (type.is_array() && type[0] == "string");
    column->maybe = maybe || type.is_array();
  });
  return all;
}

Cells cells_of(const std::vector<SweepColumn>& columns, const nlohmann::ordered_json& answer) {
  Cells cells(columns.size());
  each_value("", answer, [&](const std::string& path, const auto& value) {
    const auto column = std::ranges::find(columns, path, &SweepColumn::path);
    if (column != columns.end() && !value.is_null())
      cells[static_cast<std::size_t>(column - columns.begin())] = cell_of_json(value, text_of(value));
  });
  return cells;
}

nlohmann::ordered_json row_schema(std::string_view title, const std::vector<SweepColumn>& all,
                                  const std::vector<SweepColumn>& usual) {
  using nlohmann::ordered_json;
  ordered_json found = ordered_json::array();
  for (const SweepColumn& column : usual)
    if (!column.maybe) found.push_back(column.name);
  ordered_json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                      {"title", std::string(title) + "; a CSV table has the same columns"},
                      {"description", "beside these a column for every path that was swept over"},
                      {"type", "object"},
                      {"required", {"scenario"}},
                      {"properties", {{"scenario", {{"type", "integer"}}}}},
                      {"anyOf", {{{"required", {"error"}}}, {{"required", found}}}},
                      {"additionalProperties", {{"$ref", "result.schema.json#/$defs/row_value"}}}};
  for (const SweepColumn& column : all) schema["properties"][column.name] = column.schema;
  schema["properties"]["error"]["type"] = "string";
  return schema;
}

SweepTable::SweepTable(RowFormat format, const std::vector<ScenarioPath>& axes,
                       std::vector<SweepColumn> found)
    : format_(format), columns_{{"scenario"}} {
  for (const ScenarioPath& axis : axes) {
    axes_.push_back(axis.path);
    const auto at = std::find_if(found.begin(), found.end(),
                                 [&](const SweepColumn& column) { return column.name == axis.path; });
    if (at != found.end())
      found_column_.emplace_back(at - found.begin());
    else
      found_column_.emplace_back(), columns_.push_back({.name = axis.path, .text = is_text(axis.type)});
  }
  inputs_ = columns_.size();
  columns_.insert(columns_.end(), std::make_move_iterator(found.begin()),
                  std::make_move_iterator(found.end()));
  columns_.push_back({.name = "error", .text = true});
}

std::optional<std::size_t> SweepTable::find(std::string_view name) const {
  const auto found = std::find_if(columns_.begin(), columns_.end(),
                                  [&](const SweepColumn& column) { return column.name == name; });
  if (found == columns_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns_.begin());
}

std::size_t SweepTable::at(std::string_view name) const {
  const auto found = find(name);
  check(found.has_value(), "a sweep has the column");
  return *found;
}

std::string SweepTable::header() const {
  if (format_ != RowFormat::kCsv) return "";
  std::string out;
  for (const SweepColumn& column : columns_) {
    if (!out.empty()) out += ',';
    out += csv_cell(column.name);
  }
  return out + '\n';
}

void SweepTable::write(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                       const Cells& found, const std::string& error) const {
  const bool csv = format_ == RowFormat::kCsv;
  std::size_t column = 0;
  const auto add = [&](bool any, const std::string& written) {
    if (csv)
      out += (column > 0 ? "," : "") + written;
    else if (any)
      out += (column > 0 ? ",\"" : "{\"") + columns_[column].name + "\":" + written;
    ++column;
  };
  const auto add_cell = [&](const Cell& cell) {
    const std::string printed = text(column, cell);
    const bool quoted = std::holds_alternative<std::string>(cell);
    add(!std::holds_alternative<std::monostate>(cell), !quoted ? printed
                                                       : csv   ? csv_cell(printed)
                                                               : json_line(printed));
  };
  add_cell(static_cast<std::int64_t>(index));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const PathValue& value = values[i]; !found_column_[i])
      add(true, csv ? csv_cell(value.text) : json_line(value.json));
  for (const Cell& cell : found) add_cell(cell);
  while (column + 1 < columns_.size()) add_cell({});
  add_cell(error.empty() ? Cell() : Cell(error));
  out += csv ? "\n" : "}\n";
}

void SweepTable::write_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                             const std::string& error) const {
  Cells found(columns_.size() - inputs_ - 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const auto column = found_column_[i])
      found[*column] =
          values[i].json.is_number() ? cell_of_json(values[i].json, values[i].text) : Cell(values[i].text);
  write(out, index, values, found, error);
}

void SweepTable::read(std::string_view lines, const Take& take) const {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (const auto scenario = index_of(line))
      take({*scenario, line.size(),
            line.starts_with('{') ? json_row(line, columns_) : csv_row(line, columns_)});
  }
}

void SweepTable::read_file(const std::string& path, const Take& take) const {
  std::ifstream in(path);
  if (!in) throw InputError(SourcePlace{path}, "cannot read");
  for (std::string line; std::getline(in, line);) read(line, take);
}

std::optional<std::uint64_t> SweepTable::index_of(std::string_view row) {
  constexpr std::string_view kKey = "{\"scenario\":";
  if (row.starts_with(kKey)) row.remove_prefix(kKey.size());
  const auto index = parse_int(row.substr(0, row.find_first_of(",}")));
  if (!index || *index < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*index);
}

}  // namespace moesim::tools
