#include "tools/moesim/sweeps/sweep_pareto.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/show/inputs.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/sweeps/sweep_csv.h"

namespace moesim::tools {

namespace {

bool beats(const std::vector<double>& a, const std::vector<double>& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    better = better || a[i] < b[i];
  }
  return better || a == b;
}

// A front that takes points one by one, so that a file of any length can be read.
class Front {
 public:
  void add(std::size_t index, std::vector<double> point) {
    for (const auto& [other, present] : points_)
      if (beats(present, point)) return;
    std::erase_if(points_, [&](const auto& one) { return beats(point, one.second); });
    points_.emplace_back(index, std::move(point));
  }
  std::vector<std::size_t> indices() const {
    auto sorted = points_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<std::size_t> all;
    all.reserve(sorted.size());
    for (const auto& one : sorted) all.push_back(one.first);
    return all;
  }
  bool holds(std::size_t index) const {
    return std::any_of(points_.begin(), points_.end(), [&](const auto& one) { return one.first == index; });
  }

 private:
  std::vector<std::pair<std::size_t, std::vector<double>>> points_;
};

struct Objective {
  std::size_t column = 0;
  double sign = 1;
};

std::vector<Objective> objectives_of(const std::string& columns, const std::vector<std::string>& names) {
  std::vector<Objective> objectives;
  for (const std::string_view part : split(columns, ',')) {
    std::string_view name = trim(part);
    const double sign = name.starts_with('-') ? -1 : 1;
    if (sign < 0) name.remove_prefix(1);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw InputError(fmt::format("--pareto: found {}, expected columns of the table{}", in_quotes(name),
                                   did_you_mean(name, names)));
    objectives.push_back({static_cast<std::size_t>(found - names.begin()), sign});
  }
  return objectives;
}

}  // namespace

void check_pareto_columns(const std::string& columns, const std::vector<std::string>& names) {
  objectives_of(columns, names);
}

std::vector<std::size_t> pareto_front(const std::vector<std::vector<double>>& points) {
  Front front;
  for (std::size_t i = 0; i < points.size(); ++i) front.add(i, points[i]);
  return front.indices();
}

void print_pareto(const std::string& csv_file, const std::string& columns, std::size_t inputs,
                  const SummaryShape& shape, const CommonOptions& common) {
  std::ifstream in(csv_file);
  std::string line;
  if (!in || !std::getline(in, line)) throw InputError(SourcePlace{csv_file}, "cannot read");
  const std::vector<std::string> names = csv_cells(line, {csv_file, 1});
  const std::vector<Objective> objectives = objectives_of(columns, names);
  const auto fits =
      static_cast<std::size_t>(std::find(names.begin(), names.end(), shape.fits) - names.begin());
  Front front;
  std::vector<std::pair<std::size_t, std::vector<std::string>>> rows;  // of the front, with some that left it
  std::size_t index = 0, too_big = 0;
  for (long number = 2; std::getline(in, line); ++number, ++index) {
    std::vector<std::string> cells = csv_cells(line, {csv_file, number});
    if (cells.size() != names.size()) continue;
    if (fits < cells.size() && cells[fits] == "false") {
      ++too_big;
      continue;
    }
    std::vector<double> point;
    for (const auto& [column, sign] : objectives)
      if (const auto value = parse_number(cells[column])) point.push_back(sign * *value);
    if (point.size() != objectives.size()) continue;  // no forecast
    front.add(index, std::move(point));
    if (front.holds(index)) rows.emplace_back(index, std::move(cells));
  }
  // The inputs, the dispatcher and the objectives.
  std::vector<std::size_t> shown(inputs);
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  const auto with = std::find(names.begin(), names.end(), shape.with) - names.begin();
  if (!shape.with.empty()) shown.push_back(static_cast<std::size_t>(with));
  for (const auto& [column, sign] : objectives)
    if (std::find(shown.begin(), shown.end(), column) == shown.end()) shown.push_back(column);
  std::vector<Table::Column> heads;
  heads.reserve(shown.size());
  for (const std::size_t c : shown)
    heads.push_back({names[c], !shape.with.empty() && names[c] == shape.with ? Table::Align::kLeft
                                                                             : Table::Align::kRight});
  Table table(heads);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::size_t i : front.indices()) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == i; });
    std::vector<std::string> cells;
    nlohmann::ordered_json object;
    for (const std::size_t c : shown) {
      cells.push_back(row->second[c]);
      const auto number = parse_number(row->second[c]);
      object[names[c]] = number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(row->second[c]);
    }
    table.row(cells);
    list.push_back(std::move(object));
  }
  if (common.format == Format::kJson) {
    nlohmann::ordered_json inputs = describe_inputs(common);
    nlohmann::ordered_json result = envelope("sweep", inputs, {});
    result["pareto"] = std::move(list);
    result["left_out"] = {{"does_not_fit", too_big}};
    print_json(result);
  } else if (common.format == Format::kCsv) {
    print(table.csv());
  } else {
    print(table.text());
    if (too_big > 0) print(fmt::format("{} rows that {} are left out\n", too_big, shape.not_best));
  }
}

}  // namespace moesim::tools
