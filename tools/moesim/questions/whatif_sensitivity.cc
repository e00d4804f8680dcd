#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "tools/moesim/questions/whatif.h"
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

using Answers = models::Study<Comparison>;

// Some numbers times a factor; `better`: rates grow, times shrink.
models::Point scaled(std::span<const models::HardwareNumber> numbers, double factor, bool better) {
  std::vector<ScenarioPath> paths;
  models::Point point;
  for (const models::HardwareNumber& number : numbers) {
    const double times = better && is_time(number) ? 1 / factor : factor;
    paths.push_back(find_path("cluster." + std::string(number.path)));
    point.values.push_back({times, fmt::format("x{}", times), times});
  }
  point.paths = std::make_shared<const std::vector<ScenarioPath>>(std::move(paths));
  return point;
}

// Answers at scaled() points.
Comparison answer_at(models::Scenario scenario, const models::Point& point, int draws) {
  auto cluster = std::make_shared<models::Cluster>(*scenario.cluster);
  for (std::size_t i = 0; i < point.values.size(); ++i)
    models::find_hardware_number((*point.paths)[i].path.substr(std::string_view("cluster.").size()))
        ->scale(*cluster, point.values[i].number);
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

// Returns the elasticities of all dispatchers between two points.
Elasticities elasticities(const Answers::Row& down, const Answers::Row& up) {
  for (const Answers::Row* row : {&down, &up})
    if (!row->ok()) throw InputError(row->error);
  Elasticities all;
  for (std::size_t i = 0; i < up.answer.answers.size(); ++i)
    if (const Answer& from = down.answer.answers[i], &to = up.answer.answers[i]; from.ok() && to.ok())
      all.emplace_back(to.dispatcher, elasticity_of(from, to));
  return all;
}

double strength(const Sensitivity& s, const std::string& dispatcher) {
  for (const auto& [name, value] : s.elasticity)
    if (name == dispatcher) return std::abs(value.value);
  return 0;
}

}  // namespace

Sensitivities sensitivities(const models::Scenario& scenario, int draws, int threads,
                            const Progress& progress) {
  Sensitivities result;
  result.baseline = ask(scenario, models::AnswerOptions{.draws = draws, .each = true});
  const Comparison& baseline = result.baseline;
  std::vector<models::Point> points;
  const auto add = [&](std::span<const models::HardwareNumber> numbers, bool better) {
    for (const double factor : {1 / kStep, kStep}) points.push_back(scaled(numbers, factor, better));
  };
  for (const models::HardwareNumber& number : models::hardware_numbers()) {
    const double value = number.value(*baseline.scenario->cluster);
    if (!(value > 0)) continue;
    add({&number, 1}, false);
    Sensitivity& s = result.numbers.emplace_back();
    s.path = "cluster." + std::string(number.path);
    s.what = number.what;
    s.value = number.unit == models::HardwareUnit::kFactor ? "as measured" : shown(find_path(s.path), value);
  }
  add(models::hardware_numbers(), true);
  Answers study(
      [&]() -> Answers::Asker {
        return [&](const models::Point& point) { return answer_at(*baseline.scenario, point, draws); };
      },
      {.threads = threads, .progress = progress});
  const std::vector<Answers::Row*> rows = study.rows(points);
  for (std::size_t i = 0; i < result.numbers.size(); ++i)
    result.numbers[i].elasticity = elasticities(*rows[2 * i], *rows[2 * i + 1]);
  result.together = elasticities(*rows[rows.size() - 2], *rows.back());
  const std::string fastest = baseline.winner()->dispatcher;
  std::ranges::stable_sort(result.numbers, std::greater{},
                           [&](const Sensitivity& s) { return strength(s, fastest); });
  return result;
}

Columns<Elasticities::value_type> columns_of(Of<Elasticities::value_type>) {
  using E = Elasticities::value_type;
  return {{"dispatcher", &E::first}, {"elasticity", &E::second}};
}

Columns<Sensitivity> columns_of(Of<Sensitivity>) {
  using S = Sensitivity;
  return {{"path", &S::path}, {"what", &S::what}, {"value", &S::value}, {"dispatchers", &S::elasticity}};
}

Columns<Sensitivities> columns_of(Of<Sensitivities>) {
  using S = Sensitivities;
  return {{"baseline", [](const S& s) { return Evaluation{s.baseline}; }},
          {"sensitivity", &S::numbers},
          {"together", &S::together, "of all numbers at once, rates up and times down"}};
}

const ResultSchema kSchema("whatif", "whatif --sensitivity", with_model<schema_of<Sensitivities>>);

namespace {

// The fastest first, the only one with its interval.
Table sensitivity_table(const Sensitivities& s) {
  std::vector<Table::Column> columns{{"number", Table::Align::kLeft},
                                     {"what", Table::Align::kLeft, true},
                                     {"value", Table::Align::kRight, true}};
  const std::string fastest = s.baseline.winner()->dispatcher;
  std::vector<std::string> dispatchers{fastest};
  for (const Answer& a : s.baseline.answers)
    if (a.ok() && a.dispatcher != fastest) dispatchers.push_back(a.dispatcher);
  for (const std::string& name : dispatchers) columns.push_back({name, Table::Align::kLeft, name != fastest});
  Table table(columns);
  const auto add = [&](std::vector<std::string> cells, const Elasticities& elasticities) {
    for (const std::string& name : dispatchers) {
      const auto found =
          std::ranges::find(elasticities, name, &std::pair<std::string, models::Estimate>::first);
      if (found == elasticities.end()) {
        cells.emplace_back("-");
        continue;
      }
      const models::Estimate& e = found->second;
      cells.push_back(name != fastest ? fmt::format("{:+.3f}", e.value + 0.0)
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
    return sensitivities(base.resolved.scenario, draws, common.threads, line.teller());
  }();
  ordered_json rows = ordered_json::array();
  const auto add = [&](const Sensitivity& one) {
    ordered_json number = json_of(one);
    const ordered_json dispatchers = std::exchange(number["dispatchers"], nullptr);
    number.erase("dispatchers");
    for (const ordered_json& by : dispatchers) rows.emplace_back(number).update(by);
  };
  for (const Sensitivity& one : s.numbers) add(one);
  add({"together", "rates up, times down", "", s.together});
  return show_whatif(base, s.baseline.warnings, json_of(s), rows, common, [&] {
    const std::string fastest = s.baseline.winner()->dispatcher;
    const Sensitivity& first = s.numbers.front();
    for (const auto& [dispatcher, value] : first.elasticity)
      if (dispatcher == fastest)
        print_answer(fmt::format("{} depends most on {} ({}): 10 % more of it is {:+.1f} % of time.", fastest,
                                 first.what, first.path, 100 * (std::pow(1.1, value.value) - 1)));
    for (const auto& [dispatcher, value] : s.together)
      if (dispatcher == fastest)
        print_text(fmt::format(
            "{:.1f} % of its time follows from these numbers, the rest is time inside kernels that "
            "none of them changes.\n",
            -100 * value.value));
    print_text("\nElasticity of the time: by how many percent it changes when a number grows by 1 %.\n\n");
    print(sensitivity_table(s).text());
    print_asked(base, s.baseline.warnings, common);
  });
}

}  // namespace moesim::tools
