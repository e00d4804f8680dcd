#include "tools/moesim/study/sweep_pareto.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"

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

std::vector<Objective> objectives_of(const std::string& columns, const SweepTable& table) {
  std::vector<Objective> objectives;
  for (const std::string_view part : split(columns, ',')) {
    std::string_view name = trim(part);
    const double sign = name.starts_with('-') ? -1 : 1;
    if (sign < 0) name.remove_prefix(1);
    const auto found = table.find(name);
    if (!found) {
      std::vector<std::string> names;
      for (const SweepColumn& column : table.columns()) names.push_back(column.name);
      throw InputError(fmt::format("--pareto: found {}, expected columns of the table{}", in_quotes(name),
                                   did_you_mean(name, names)));
    }
    objectives.push_back({*found, sign});
  }
  return objectives;
}

}  // namespace

void check_pareto_columns(const std::string& columns, const SweepTable& table) {
  objectives_of(columns, table);
}

std::vector<std::size_t> pareto_front(const std::vector<std::vector<double>>& points) {
  Front front;
  for (std::size_t i = 0; i < points.size(); ++i) front.add(i, points[i]);
  return front.indices();
}

void print_pareto(const std::string& csv_file, const std::string& columns, const SweepTable& table,
                  const SummaryShape& shape, const CommonOptions& common) {
  const std::vector<Objective> objectives = objectives_of(columns, table);
  const auto fits = table.find(shape.fits), with = table.find(shape.with);
  Front front;
  std::vector<std::pair<std::size_t, Cells>> rows;  // of the front, with some that have left it
  std::size_t index = 0, too_big = 0;
  table.read_file(csv_file, [&](SweepRow&& row) {
    ++index;
    if (fits && row.cells[*fits] == Cell(false)) {
      ++too_big;
      return;
    }
    std::vector<double> point;
    for (const auto& [column, sign] : objectives)
      if (const auto value = number_of(row.cells[column])) point.push_back(sign * *value);
    if (point.size() != objectives.size()) return;  // no forecast
    front.add(index, std::move(point));
    if (front.holds(index)) rows.emplace_back(index, std::move(row.cells));
  });
  // The inputs, the dispatcher and the objectives.
  std::vector<std::size_t> shown(table.inputs());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (with) shown.push_back(*with);
  for (const auto& [column, sign] : objectives)
    if (std::find(shown.begin(), shown.end(), column) == shown.end()) shown.push_back(column);
  std::vector<Table::Column> heads;
  heads.reserve(shown.size());
  for (const std::size_t c : shown)
    heads.push_back({table.columns()[c].name, with == c ? Table::Align::kLeft : Table::Align::kRight});
  Table printed(heads);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::size_t i : front.indices()) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == i; });
    std::vector<std::string> cells;
    nlohmann::ordered_json object;
    for (const std::size_t c : shown) {
      cells.push_back(table.text(c, row->second[c]));
      nlohmann::ordered_json& value = object[table.columns()[c].name];
      if (const auto number = number_of(row->second[c]))
        value = *number;
      else
        value = cells.back();
    }
    printed.row(cells);
    list.push_back(std::move(object));
  }
  if (common.format == Format::kJson) {
    nlohmann::ordered_json inputs = describe_inputs(common);
    nlohmann::ordered_json result = envelope("sweep", inputs, {});
    result["pareto"] = std::move(list);
    result["left_out"] = {{"does_not_fit", too_big}};
    print_json(result);
  } else if (common.format == Format::kCsv) {
    print(printed.csv());
  } else {
    print(printed.text());
    if (too_big > 0) print(fmt::format("{} rows that {} are left out\n", too_big, shape.not_best));
  }
}

}  // namespace moesim::tools
