#include "tools/moesim/questions/whatif_best.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/answers/plan_search.h"
#include "models/hardware/cluster.h"
#include "replay/recording/routing_from_dispatching.h"
#include "tools/moesim/jobs/job_arguments.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/progress.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::PlanSearchResult;
using models::RankedPlan;
using nlohmann::ordered_json;

models::PlanSearchOptions options_of(const WhatifBest& o, const CommonOptions& common) {
  using Options = models::PlanSearchOptions;
  static constexpr std::array<std::pair<std::string_view, bool Options::*>, 8> kAxes{
      {{"parallel", &Options::parallel},
       {"dispatcher", &Options::dispatcher},
       {"recompute", &Options::recompute},
       {"precision", &Options::precision},
       {"schedule", &Options::schedule},
       {"overlap", &Options::overlap},
       {"launch", &Options::launch},
       {"sharding", &Options::sharding}}};
  Options options;
  options.parallel = options.dispatcher = options.recompute = false;
  for (const std::string_view text : split(o.axes, ',')) {
    const std::string_view axis = trim(text);
    const auto* const found =
        std::find_if(kAxes.begin(), kAxes.end(), [&](const auto& known) { return known.first == axis; });
    if (found == kAxes.end()) {
      std::vector<std::string> names;
      names.reserve(kAxes.size());
      for (const auto& [name, member] : kAxes) names.emplace_back(name);
      throw InputError(fmt::format("--best: found {}, expected any of {}, joined with commas{}",
                                   in_quotes(axis), join(names, ", "), did_you_mean(axis, names)));
    }
    options.*(found->second) = true;
  }
  if (!o.under.empty() && o.under != "memory")
    throw InputError(fmt::format("--under: found {}, expected memory{}", in_quotes(o.under),
                                 did_you_mean(o.under, std::vector<std::string>{"memory"})));
  options.under_memory = o.under == "memory";
  options.top = o.top;
  options.draws = o.draws;
  options.most = o.most;
  options.threads = common.threads;
  return options;
}

ordered_json plan_json(const RankedPlan& plan) {
  ordered_json j = models::to_json(*plan.scenario);
  j["dispatcher"] = plan.scenario->dispatchers.front().text();
  j["probability"] = plan.probability;
  j["tie_group"] = plan.tie_group;
  j["forecast"] = answer_json(plan.answer, *plan.scenario);
  return j;
}

// Returns rules by the number of plans that they excluded.
std::vector<std::pair<std::string, std::int64_t>> most_frequent(
    const std::map<std::string, std::int64_t>& rules, std::size_t most) {
  std::vector<std::pair<std::string, std::int64_t>> all(rules.begin(), rules.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (all.size() > most) all.resize(most);
  return all;
}

// Returns the searched settings of a plan besides its parallel sizes, dispatcher and recomputation.
std::string run_text(const models::Scenario& s, const models::PlanSearchOptions& o) {
  std::vector<std::string> parts;
  const models::TrainingPlan& t = s.training;
  if (o.precision) parts.push_back(t.precision);
  if (o.schedule) parts.emplace_back(name_of(t.pipeline));
  if (o.launch) parts.emplace_back(name_of(t.launch));
  if (o.sharding) parts.emplace_back(name_of(t.sharding));
  if (o.overlap && t.overlap.expert_communication)
    parts.emplace_back(t.overlap.delayed_wgrad ? "overlapped, delayed wgrad" : "overlapped");
  return join(parts, ", ");
}

Table plan_table(const PlanSearchResult& r, const models::PlanSearchOptions& o) {
  const bool runs = o.precision || o.schedule || o.launch || o.sharding || o.overlap;
  std::vector<Table::Column> columns{{"TP"},
                                     {"CP"},
                                     {"PP"},
                                     {"VPP"},
                                     {"EP"},
                                     {"ETP"},
                                     {"DP"},
                                     {"microbatches"},
                                     {"dispatcher", Table::Align::kLeft},
                                     {"recompute", Table::Align::kLeft}};
  if (runs) columns.push_back({"run", Table::Align::kLeft});
  for (const Table::Column& column : std::vector<Table::Column>{{"step [ms]"},
                                                                {"low"},
                                                                {"high"},
                                                                {"tokens/s/GPU"},
                                                                {"TFLOP/s/GPU"},
                                                                {"bubble"},
                                                                {"memory [GB]"},
                                                                {"fits", Table::Align::kLeft},
                                                                {"P(fits)"},
                                                                {"P(best)"}})
    columns.push_back(column);
  Table table(columns);
  for (const RankedPlan& plan : r.best) {
    const models::Parallel& p = plan.scenario->parallel;
    const models::Answer& f = plan.answer;
    const auto number = [](std::int64_t n) { return fmt::format("{}", n); };
    std::vector<std::string> row{number(p.tp),
                                 number(p.cp),
                                 number(p.pp),
                                 number(p.vpp),
                                 number(p.ep),
                                 number(p.etp),
                                 number(p.dp),
                                 fmt::format("{} x {}", p.microbatches, p.micro_batch),
                                 plan.scenario->dispatchers.front().text(),
                                 plan.scenario->training.recompute.text()};
    if (runs) row.push_back(run_text(*plan.scenario, o));
    for (std::string cell :
         {fmt::format("{:.1f}", f.time_us.value * 1e-3), fmt::format("{:.1f}", f.time_us.low * 1e-3),
          fmt::format("{:.1f}", f.time_us.high * 1e-3), fmt::format("{:.0f}", f.tokens_per_s_per_gpu()),
          fmt::format("{:.1f}", f.tflops_per_gpu()),
          fmt::format("{:.1f} %", f.breakdown_us[static_cast<std::size_t>(sim::Category::bubble)] /
                                      f.time_us.value * 100),
          fmt::format("{:.1f}", f.memory.max_bytes * 1e-9),
          f.memory.fits ? std::string("yes") : "no: " + format_bytes(f.memory.missing_bytes),
          fmt::format("{:.2f}", f.memory.fits_probability), fmt::format("{:.2f}", plan.probability)})
      row.push_back(std::move(cell));
    table.row(std::move(row));
  }
  return table;
}

// A plan needs a training step: sets scope step where no scope was given.
models::Scenario of_step(models::Scenario scenario) {
  if (scenario.scope != models::Scenario::Scope::kStep && scenario.gave("scope"))
    throw InputError("--best: found scope layer, expected step: plans are compared by their training step");
  scenario.scope = models::Scenario::Scope::kStep;
  scenario.give("scope");
  return scenario;
}

models::Scenario opened(models::Scenario scenario) {
  replay::open_routing(scenario.routing);
  return scenario;
}

}  // namespace

int whatif_best(const models::Scenario& asked, const WhatifBest& o, const CommonOptions& common) {
  models::PlanSearchOptions options = options_of(o, common);
  models::Scenario scenario = of_step(asked);
  // The compared dispatchers are the ones to search.
  if (scenario.dispatchers.size() > 1) scenario.give("dispatcher");
  const auto start = std::chrono::steady_clock::now();
  std::optional<JobFramework> framework;
  if (!o.arguments.empty()) framework.emplace(framework_named(o.arguments));
  if (framework && common.format == Format::kCsv)
    throw InputError("whatif: found --arguments with --format csv, expected table or json");
  const PlanSearchResult r = [&] {
    ProgressLine line(common);
    options.progress = line.teller();
    return models::search_plans(opened(scenario), options);
  }();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::string> warnings;
  for (const RankedPlan& plan : r.best) add_new(warnings, plan.answer.warnings);
  if (wants_result(common)) {
    ordered_json inputs = describe_inputs(common);
    inputs["scenario"] = models::to_json(scenario);
    ordered_json result = envelope("whatif", inputs, warnings);
    add_model(result, scenario);
    result["best"] = ordered_json::array();
    for (const RankedPlan& plan : r.best) result["best"].push_back(plan_json(plan));
    result["plans"] = {
        {"candidates", r.candidates}, {"forecast", r.forecast}, {"does_not_fit", r.does_not_fit},
        {"illegal", r.illegal},       {"slower", r.slower},     {"skipped", r.skipped}};
    result["plans"]["rules"] = ordered_json::array();
    for (const auto& [rule, count] : most_frequent(r.rules, r.rules.size()))
      result["plans"]["rules"].push_back({{"rule", rule}, {"plans", count}});
    result["plans"]["space"] = r.space;
    result["method"] = r.method;
    if (framework && !r.best.empty())
      result["arguments"] =
          job_arguments_json(arguments_of(*r.best.front().scenario, *framework), *framework);
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(plan_table(r, options).csv());
    return 0;
  }
  for (const std::string& warning : warnings) warn(common, warning);
  const models::RankedPlan& first = r.best.front();
  print(fmt::format("{} on {}: the best plans for {} GPUs and a batch of {:.3g} tokens\n\n",
                    first.scenario->model.name, first.scenario->cluster->name, first.answer.gpus,
                    first.answer.tokens));
  print(plan_table(r, options).text());
  const auto tied =
      std::count_if(r.best.begin(), r.best.end(), [](const RankedPlan& p) { return p.tie_group == 0; });
  if (tied > 1) print(fmt::format("\nNo draw tells the first {} apart surely.\n", tied));
  print(fmt::format(
      "\n{} combinations: {} forecast, {} surely no faster, {} do not fit the memory, {} illegal, {} left "
      "open; {}.\n",
      r.candidates, r.forecast, r.slower, r.does_not_fit, r.illegal, r.skipped, r.method));
  for (const auto& [rule, count] : most_frequent(r.rules, 3))
    print(fmt::format("illegal {}: {}\n", count, rule));
  print(fmt::format("Tried: {}.\n", r.space));
  if (!options.dispatcher && scenario.dispatchers.size() > 1)
    print("Add dispatcher to --best to search dispatchers, too.\n");
  if (framework) print(plan_arguments_text(*first.scenario, *framework));
  if (!common.quiet) say(fmt::format("{} plans in {:.1f} s\n", r.candidates - r.skipped, seconds));
  return 0;
}

}  // namespace moesim::tools
