#include "tools/moesim/whatif_sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include <nlohmann/json.hpp>

#include "models/cluster.h"
#include "models/hardware.h"
#include "tools/moesim/output.h"
#include "tools/moesim/whatif_report.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr double kStep = 1.05;

Evaluation with_factor(models::Scenario scenario, const models::HardwareNumber& number, double factor,
                       int draws) {
  auto cluster = std::make_shared<models::Cluster>(*scenario.cluster);
  number.scale(*cluster, factor);
  scenario.cluster = std::move(cluster);
  return evaluate(std::move(scenario), {draws, false});
}

models::Estimate elasticity_of(const Answer& down, const Answer& up) {
  const double span = 2 * std::log(kStep);
  const auto slope = [&](double from, double to) { return std::log(to / from) / span; };
  const double value = slope(down.time_us.value, up.time_us.value);
  if (down.draws_us.empty() || down.draws_us.size() != up.draws_us.size())
    return models::Estimate::exact(value);
  std::vector<double> each(down.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = slope(down.draws_us[d], up.draws_us[d]);
  return models::Estimate::from_samples(value, each);
}

double strength(const Sensitivity& s, const std::string& dispatcher) {
  for (const auto& [name, value] : s.elasticity)
    if (name == dispatcher) return std::abs(value.value);
  return 0;
}

}  // namespace

std::vector<Sensitivity> sensitivities(const models::Scenario& scenario, int draws, Evaluation& baseline) {
  baseline = evaluate(scenario, {draws, true});
  std::vector<Sensitivity> all;
  for (const models::HardwareNumber& number : models::hardware_numbers()) {
    const double value = number.value(*baseline.scenario.cluster);
    if (!(value > 0)) continue;
    const Evaluation down = with_factor(baseline.scenario, number, 1 / kStep, draws);
    const Evaluation up = with_factor(baseline.scenario, number, kStep, draws);
    Sensitivity& s = all.emplace_back();
    s.path = "cluster." + std::string(number.path);
    s.what = number.what;
    s.value = number.unit == models::HardwareUnit::kFactor ? "as measured" : shown(find_path(s.path), value);
    for (std::size_t i = 0; i < up.answers.size(); ++i)
      if (up.answers[i].ok() && down.answers[i].ok())
        s.elasticity.emplace_back(up.answers[i].dispatcher, elasticity_of(down.answers[i], up.answers[i]));
  }
  const std::string fastest = baseline.fastest()->dispatcher;
  std::stable_sort(all.begin(), all.end(), [&](const Sensitivity& a, const Sensitivity& b) {
    return strength(a, fastest) > strength(b, fastest);
  });
  return all;
}

int run_sensitivity(const ScenarioDocument& base, int draws, const CommonOptions& common) {
  Evaluation baseline;
  const std::vector<Sensitivity> all = sensitivities(base.scenario(), draws, baseline);
  if (common.format == Format::kJson) {
    ordered_json result = envelope("whatif", whatif_inputs(base, common), baseline.warnings);
    result["baseline"] = evaluation_json(baseline);
    result["sensitivity"] = ordered_json::array();
    for (const Sensitivity& s : all) {
      ordered_json by = ordered_json::array();
      for (const auto& [dispatcher, value] : s.elasticity)
        by.push_back({{"dispatcher", dispatcher}, {"elasticity", estimate_json(value)}});
      result["sensitivity"].push_back(
          {{"path", s.path}, {"what", s.what}, {"value", s.value}, {"dispatchers", by}});
    }
    print_json(result);
    return 0;
  }
  std::vector<Table::Column> columns{
      {"number", Table::Align::kLeft}, {"what", Table::Align::kLeft}, {"value"}};
  for (const Answer& a : baseline.answers)
    if (a.ok()) columns.push_back({a.dispatcher, Table::Align::kLeft});
  Table table(columns);
  for (const Sensitivity& s : all) {
    std::vector<std::string> cells{s.path, s.what, s.value};
    for (const Answer& a : baseline.answers) {
      if (!a.ok()) continue;
      const auto found = std::find_if(s.elasticity.begin(), s.elasticity.end(),
                                      [&](const auto& one) { return one.first == a.dispatcher; });
      cells.push_back(found == s.elasticity.end()
                          ? "-"
                          : fmt::format("{:+.3f} ({:+.3f} to {:+.3f})", found->second.value + 0.0,
                                        found->second.low + 0.0, found->second.high + 0.0));
    }
    table.row(cells);
  }
  if (common.format == Format::kCsv) {
    print(table.csv());
    return 0;
  }
  for (const std::string& warning : baseline.warnings) warn(common, warning);
  print("Elasticity of the time: by how many percent it changes when a number grows by 1 %.\n\n");
  print(table.text());
  const Sensitivity& first = all.front();
  const std::string fastest = baseline.fastest()->dispatcher;
  for (const auto& [dispatcher, value] : first.elasticity)
    if (dispatcher == fastest)
      print(fmt::format("\n{} depends most on {} ({}): 10 % more of it is {:+.1f} % of time.\n", fastest,
                        first.what, first.path, 100 * (std::pow(1.1, value.value) - 1)));
  return 0;
}

}  // namespace moesim::tools
