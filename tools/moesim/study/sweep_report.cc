#include "tools/moesim/study/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/question/paths.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

bool says_something(const std::string& column, const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return false;
  return !column.starts_with("breakdown_us.") || number_of(cell).value_or(0) != 0;
}

ordered_json json_of(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return nullptr;
        else
          return value;
      },
      cell);
}

}  // namespace

void SweepReport::add(SweepRow row) {
  if (row.scenario != last_) ++scenarios_, last_ = row.scenario;
  if (row.scenario % step_ != 0) return;
  bytes_ += row.bytes;
  rows_.push_back(std::move(row));
  if (bytes_ > most_bytes_) thin_out();
}

void SweepReport::thin_out() {
  step_ *= 2;
  std::erase_if(rows_, [&](const SweepRow& row) { return row.scenario % step_ != 0; });
  bytes_ = 0;
  for (const SweepRow& row : rows_) bytes_ += row.bytes;
}

void SweepReport::add_to(ordered_json& result) const {
  result["scenarios"] = scenarios_;
  if (step_ > 1) result["left_out"] = fmt::format("all but every {}th scenario", step_);
  result["columns"] = ordered_json::array();
  std::vector<std::size_t> used;
  for (std::size_t c = 0; c < table_.columns().size(); ++c) {
    const std::string& name = table_.columns()[c].name;
    // The page looks these up by name.
    if (name == "scenario" || name == "dispatcher" || name == "error" ||
        std::any_of(rows_.begin(), rows_.end(),
                    [&](const SweepRow& row) { return says_something(name, row.cells[c]); })) {
      used.push_back(c);
      result["columns"].push_back(name);
    }
  }
  // Units of the paths, whose values are in SI units.
  result["units"] = ordered_json::object();
  for (std::size_t c = 1; c < table_.columns().size() && table_.columns()[c].name != "dispatcher"; ++c) {
    const std::string& name = table_.columns()[c].name;
    const auto path = std::ranges::find(models::scenario_paths(), name, &models::ScenarioPath::path);
    if (path == models::scenario_paths().end()) continue;
    if (const auto [unit, one] = models::unit_of(*path); *unit != '\0')
      result["units"][name] = {{"name", unit}, {"one", one}};
  }
  result["rows"] = ordered_json::array();
  for (const SweepRow& row : rows_) {
    ordered_json cells = ordered_json::array();
    for (const std::size_t c : used) cells.push_back(json_of(row.cells[c]));
    result["rows"].push_back(std::move(cells));
  }
}

}  // namespace moesim::tools
