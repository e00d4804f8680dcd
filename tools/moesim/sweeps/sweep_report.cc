#include "tools/moesim/sweeps/sweep_report.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/sweeps/sweep_csv.h"
#include "tools/moesim/sweeps/sweep_table.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

ordered_json value_of(const std::string& cell) {
  if (cell.empty()) return nullptr;
  if (cell == "true" || cell == "false") return cell == "true";
  if (const auto whole = parse_int(cell)) return *whole;
  if (const auto number = parse_number(cell)) return *number;
  return cell;
}

bool says_something(const std::string& column, const ordered_json& value) {
  if (value.is_null()) return false;
  return !column.starts_with("breakdown_us.") || (value.is_number() && value.get<double>() != 0);
}

}  // namespace

SweepReport::SweepReport(std::vector<std::string> columns, std::size_t most_bytes)
    : columns_(std::move(columns)), most_bytes_(most_bytes) {}

void SweepReport::add(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const auto scenario = SweepTable::index_of(line);
    if (!scenario) continue;  // a header
    if (*scenario != last_) ++scenarios_, last_ = *scenario;
    if (*scenario % step_ != 0) continue;
    bytes_ += line.size();
    lines_.push_back({*scenario, std::string(line)});
    if (bytes_ > most_bytes_) thin_out();
  }
}

void SweepReport::thin_out() {
  step_ *= 2;
  std::erase_if(lines_, [&](const Line& line) { return line.scenario % step_ != 0; });
  bytes_ = 0;
  for (const Line& line : lines_) bytes_ += line.text.size();
}

void SweepReport::add_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw InputError(SourcePlace{path}, "cannot read");
  for (std::string line; std::getline(in, line);) add(line);
}

void SweepReport::add_to(ordered_json& result) const {
  std::vector<std::vector<ordered_json>> rows;
  std::vector<bool> used(columns_.size(), false);
  for (const Line& line : lines_) {
    std::vector<ordered_json>& row = rows.emplace_back();
    for (const std::string& cell : row_cells(line.text, columns_)) row.push_back(value_of(cell));
    for (std::size_t c = 0; c < row.size(); ++c)
      if (says_something(columns_[c], row[c])) used[c] = true;
  }
  result["scenarios"] = scenarios_;
  if (step_ > 1) result["left_out"] = fmt::format("all but every {}th scenario", step_);
  result["columns"] = ordered_json::array();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    // The page looks for these by name.
    if (columns_[c] == "scenario" || columns_[c] == "dispatcher" || columns_[c] == "error") used[c] = true;
    if (used[c]) result["columns"].push_back(columns_[c]);
  }
  result["rows"] = ordered_json::array();
  for (std::vector<ordered_json>& row : rows) {
    ordered_json cells = ordered_json::array();
    for (std::size_t c = 0; c < row.size(); ++c)
      if (used[c]) cells.push_back(std::move(row[c]));
    result["rows"].push_back(std::move(cells));
  }
}

}  // namespace moesim::tools
