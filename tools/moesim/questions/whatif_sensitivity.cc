#include "tools/moesim/questions/whatif_sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "tools/moesim/questions/whatif_change.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr double kStep = 1.05;

// Times are better when smaller, rates when larger.
bool is_time(const models::HardwareNumber& number) {
  return number.unit == models::HardwareUnit::kSeconds || number.unit == models::HardwareUnit::kFactor;
}

Comparison with_factor(models::Scenario scenario, std::span<const models::HardwareNumber> numbers,
                       double factor, bool better, int draws) {
  auto cluster = std::make_shared<models::Cluster>(*scenario.cluster);
  for (const models::HardwareNumber& number : numbers)
    number.scale(*cluster, better && is_time(number) ? 1 / factor : factor);
  scenario.cluster = std::move(cluster);
  return ask(std::move(scenario), models::AnswerOptions{.draws = draws, .breakdown = false, .each = true});
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

// Returns the elasticities of all dispatchers to some numbers at once.
Elasticities elasticities(const models::Scenario& scenario, std::span<const models::HardwareNumber> numbers,
                          bool better, int draws) {
  const Comparison down = with_factor(scenario, numbers, 1 / kStep, better, draws);
  const Comparison up = with_factor(scenario, numbers, kStep, better, draws);
  Elasticities all;
  for (std::size_t i = 0; i < up.answers.size(); ++i)
    if (up.answers[i].ok() && down.answers[i].ok())
      all.emplace_back(up.answers[i].dispatcher, elasticity_of(down.answers[i], up.answers[i]));
  return all;
}

double strength(const Sensitivity& s, const std::string& dispatcher) {
  for (const auto& [name, value] : s.elasticity)
    if (name == dispatcher) return std::abs(value.value);
  return 0;
}

}  // namespace

Sensitivities sensitivities(const models::Scenario& scenario, int draws, const Progress& progress) {
  Sensitivities result;
  result.baseline = ask(scenario, models::AnswerOptions{.draws = draws, .each = true});
  const Comparison& baseline = result.baseline;
  std::vector<Sensitivity>& all = result.numbers;
  // One more: all of them at once.
  const auto numbers = static_cast<std::int64_t>(models::hardware_numbers().size()) + 1;
  std::int64_t done = 0;
  for (const models::HardwareNumber& number : models::hardware_numbers()) {
    if (progress) progress(done++, numbers);
    const double value = number.value(*baseline.scenario->cluster);
    if (!(value > 0)) continue;
    Sensitivity& s = all.emplace_back();
    s.path = "cluster." + std::string(number.path);
    s.what = number.what;
    s.value = number.unit == models::HardwareUnit::kFactor ? "as measured" : shown(find_path(s.path), value);
    s.elasticity = elasticities(*baseline.scenario, {&number, 1}, false, draws);
  }
  result.together = elasticities(*baseline.scenario, models::hardware_numbers(), true, draws);
  const std::string fastest = baseline.winner()->dispatcher;
  std::stable_sort(all.begin(), all.end(), [&](const Sensitivity& a, const Sensitivity& b) {
    return strength(a, fastest) > strength(b, fastest);
  });
  return result;
}

namespace {

ordered_json by_dispatcher(const Elasticities& elasticities) {
  ordered_json by = ordered_json::array();
  for (const auto& [dispatcher, value] : elasticities)
    by.push_back({{"dispatcher", dispatcher}, {"elasticity", estimate_json(value)}});
  return by;
}

// `people`: the fastest first, the only one with its interval.
Table sensitivity_table(const Sensitivities& s, bool people) {
  std::vector<Table::Column> columns{{"number", Table::Align::kLeft},
                                     {"what", Table::Align::kLeft, people},
                                     {"value", Table::Align::kRight, people}};
  std::vector<std::string> dispatchers;
  for (const Answer& a : s.baseline.answers)
    if (a.ok()) dispatchers.push_back(a.dispatcher);
  const std::string fastest = s.baseline.winner()->dispatcher;
  if (people)
    std::stable_partition(dispatchers.begin(), dispatchers.end(),
                          [&](const std::string& name) { return name == fastest; });
  for (const std::string& name : dispatchers)
    columns.push_back({name, Table::Align::kLeft, people && name != fastest});
  Table table(columns);
  const auto add = [&](std::vector<std::string> cells, const Elasticities& elasticities) {
    for (const std::string& name : dispatchers) {
      const auto found = std::ranges::find(elasticities, name, [](const auto& one) { return one.first; });
      if (found == elasticities.end()) {
        cells.emplace_back("-");
        continue;
      }
      const models::Estimate& e = found->second;
      cells.push_back(people && name != fastest ? fmt::format("{:+.3f}", e.value + 0.0)
                                                : fmt::format("{:+.3f} ({:+.3f} to {:+.3f})", e.value + 0.0,
                                                              e.low + 0.0, e.high + 0.0));
    }
    table.row(cells);
  };
  for (const Sensitivity& one : s.numbers) add({one.path, one.what, one.value}, one.elasticity);
  table.separator();
  add({"together", "rates up, times down", ""}, s.together);
  return table;
}

}  // namespace

int run_sensitivity(const Base& base, int draws, const CommonOptions& common) {
  const Sensitivities s = [&] {
    ProgressLine line(common);
    return sensitivities(base.resolved.scenario, draws, line.teller());
  }();
  if (wants_result(common)) {
    ordered_json result = whatif_result(base, s.baseline.warnings, common);
    result["baseline"] = evaluation_json(s.baseline);
    result["sensitivity"] = ordered_json::array();
    for (const Sensitivity& one : s.numbers)
      result["sensitivity"].push_back({{"path", one.path},
                                       {"what", one.what},
                                       {"value", one.value},
                                       {"dispatchers", by_dispatcher(one.elasticity)}});
    result["together"] = by_dispatcher(s.together);
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(sensitivity_table(s, false).csv());
    return 0;
  }
  const std::string fastest = s.baseline.winner()->dispatcher;
  const Sensitivity& first = s.numbers.front();
  for (const auto& [dispatcher, value] : first.elasticity)
    if (dispatcher == fastest)
      print_answer(fmt::format("{} depends most on {} ({}): 10 % more of it is {:+.1f} % of time.", fastest,
                               first.what, first.path, 100 * (std::pow(1.1, value.value) - 1)));
  for (const auto& [dispatcher, value] : s.together)
    if (dispatcher == fastest)
      print_text(
          fmt::format("{:.1f} % of its time follows from these numbers, the rest is time inside kernels that "
                      "none of them changes.\n",
                      -100 * value.value));
  print_text("\nElasticity of the time: by how many percent it changes when a number grows by 1 %.\n\n");
  print(sensitivity_table(s, true).text());
  print_asked(base);
  warn_below(common, to_act_on(s.baseline.warnings, *s.baseline.scenario->cluster, s.baseline.answers));
  return 0;
}

}  // namespace moesim::tools
