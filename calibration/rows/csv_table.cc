#include "calibration/rows/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/csv.h"
#include "base/text.h"

namespace moesim::calibration {
namespace {

std::string trimmed(std::string_view text) { return std::string(trim(text)); }

}  // namespace

CsvTable CsvTable::parse(std::string_view text, std::string file, std::vector<InputError>* refused) {
  CsvTable table;
  table.file_ = std::move(file);
  long line_number = 0;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (std::string_view line : split(text, '\n')) {
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (trim(line).empty() || line.front() == '#') continue;
    const SourcePlace place{table.file_, line_number, 0};
    std::vector<std::string> fields;
    try {
      fields = csv_cells(line, place);
      if (!table.columns_.empty() && fields.size() != table.columns_.size())
        throw InputError(place, std::to_string(fields.size()) + " fields",
                         std::to_string(table.columns_.size()) + ", as the header names");
    } catch (const InputError& error) {
      if (refused == nullptr || table.columns_.empty()) throw;
      refused->push_back(error);
      continue;
    }
    if (table.columns_.empty()) {
      std::set<std::string> seen;
      for (const std::string& field : fields) {
        table.columns_.push_back(trimmed(field));
        if (table.columns_.back().empty()) throw InputError(place, "an empty column name", "a name");
        if (!seen.insert(table.columns_.back()).second)
          throw InputError(place, "the column " + in_quotes(table.columns_.back()) + " twice", "it once");
      }
      continue;
    }
    table.cells_.push_back(std::move(fields));
    table.lines_.push_back(line_number);
  }
  if (table.columns_.empty())
    throw InputError({table.file_, 0, 0}, "no column names", "a table with a header line");
  return table;
}

bool CsvTable::has(std::string_view column) const {
  return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
}

std::size_t CsvTable::column_index(std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end())
    throw InputError({file_, 0, 0}, "no column " + in_quotes(column), "columns " + join(columns_, ","));
  return static_cast<std::size_t>(found - columns_.begin());
}

const std::string& CsvTable::text(std::size_t row, std::string_view column) const {
  return cells_[row][column_index(column)];
}

double CsvTable::number(std::size_t row, std::string_view column, double low, double high) const {
  const std::string& field = text(row, column);
  const auto value = parse_number(trim(field));
  if (!value || !(*value >= low && *value <= high))
    throw InputError(place(row), in_quotes(field) + " as " + std::string(column),
                     value ? fmt::format("a number from {:g} to {:g}", low, high) : "a finite number");
  return *value;
}

long long CsvTable::integer(std::size_t row, std::string_view column, long long low, long long high) const {
  const std::string& field = text(row, column);
  const auto value = parse_int(trim(field));
  if (!value || *value < low || *value > high)
    throw InputError(place(row), in_quotes(field) + " as " + std::string(column),
                     "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return *value;
}

std::optional<double> CsvTable::optional_number(std::size_t row, std::string_view column, double low,
                                                double high) const {
  if (trim(text(row, column)).empty()) return std::nullopt;
  return number(row, column, low, high);
}

}  // namespace moesim::calibration
