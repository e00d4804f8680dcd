#include "tools/moesim/sweeps/sweep_table.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/json_text.h"
#include "base/text.h"

namespace moesim::tools {

SweepTable::SweepTable(RowFormat format, const std::vector<ScenarioPath>& axes,
                       std::vector<std::string> found)
    : format_(format), names_{"scenario"} {
  found_column_.resize(axes.size());
  const auto is_found = [&](const ScenarioPath& axis) {
    return std::find(found.begin(), found.end(), axis.path) != found.end();
  };
  for (const ScenarioPath& axis : axes)
    if (!is_found(axis)) names_.push_back(axis.path);
  inputs_ = names_.size();
  names_.insert(names_.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  names_.emplace_back("error");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto at = std::find(names_.begin(), names_.end(), axes[i].path) - names_.begin();
    if (static_cast<std::size_t>(at) >= inputs_) found_column_[i] = static_cast<std::size_t>(at);
  }
}

std::string SweepTable::header() const {
  if (format_ != RowFormat::kCsv) return "";
  std::string out;
  for (const std::string& name : names_) {
    if (!out.empty()) out += ',';
    out += csv_cell(name);
  }
  return out + '\n';
}

void SweepTable::Row::begin() {
  if (csv()) {
    if (column_ > 0) out_ += ',';
  } else {
    out_ += started_ ? ',' : '{';
    started_ = true;
    out_ += '"';
    out_ += table_.names_[column_];
    out_ += "\":";
  }
  ++column_;
}

void SweepTable::Row::text(std::string_view value) {
  begin();
  if (csv())
    out_ += csv_cell(value);
  else
    out_ += json_line(value);
}

void SweepTable::Row::json(const PathValue& value) {
  if (csv())
    text(value.text);
  else
    begin(), out_ += json_line(value.json);
}

void SweepTable::Row::none() {
  if (csv())
    begin();
  else
    ++column_;
}

void SweepTable::Row::skip_to_error() {
  while (column_ + 1 < table_.names_.size()) none();
}

void SweepTable::Row::end() { out_ += csv() ? "\n" : "}\n"; }

SweepTable::Row SweepTable::row(std::string& out, std::uint64_t index,
                                const std::vector<PathValue>& values) const {
  Row row(out, *this);
  row.plain("{}", index);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!found_column_[i]) row.json(values[i]);
  return row;
}

void SweepTable::append_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                              const std::string& error) const {
  Row made = row(out, index, values);
  for (std::size_t c = inputs_; c + 1 < names_.size(); ++c) {
    const auto axis = std::find(found_column_.begin(), found_column_.end(), std::optional(c));
    if (axis == found_column_.end()) {
      made.none();
      continue;
    }
    const PathValue& value = values[static_cast<std::size_t>(axis - found_column_.begin())];
    if (value.json.is_number())
      made.json(value);
    else
      made.text(value.text);
  }
  made.text(error);
  made.end();
}

std::optional<std::uint64_t> SweepTable::index_of(std::string_view row) {
  constexpr std::string_view kKey = "{\"scenario\":";
  if (row.starts_with(kKey)) row.remove_prefix(kKey.size());
  const auto index = parse_int(row.substr(0, row.find_first_of(",}")));
  if (!index || *index < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*index);
}

}  // namespace moesim::tools
