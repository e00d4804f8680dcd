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
#include "models/workload/global_batch.h"
#include "replay/recording/recorded_routing.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/terminal.h"

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
  const models::TrainingSettings& t = s.training;
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

// Fewer columns, of which those that all plans share stand in the sentence below.
Table people_plan_table(const PlanSearchResult& r, const models::PlanSearchOptions& o) {
  using models::Parallel;
  using Size = std::int64_t Parallel::*;
  std::vector<std::pair<const char*, Size>> sizes{
      {"TP", &Parallel::tp}, {"PP", &Parallel::pp}, {"EP", &Parallel::ep}, {"DP", &Parallel::dp}};
  for (const auto& [name, size] :
       {std::pair<const char*, Size>{"CP", &Parallel::cp}, {"VPP", &Parallel::vpp}, {"ETP", &Parallel::etp}})
    if (std::ranges::any_of(
            r.best, [size = size](const RankedPlan& plan) { return plan.scenario->parallel.*size > 1; }))
      sizes.emplace_back(name, size);
  const bool runs = o.precision || o.schedule || o.launch || o.sharding || o.overlap;
  double longest = 0;
  for (const RankedPlan& plan : r.best) longest = std::max(longest, plan.answer.time_us.value);
  const TimeUnit unit = TimeUnit::of(longest);
  std::vector<Table::Column> columns;
  for (const auto& [name, size] : sizes) columns.push_back({name});
  columns.push_back({"microbatches", Table::Align::kRight, true});
  columns.push_back({"dispatcher", Table::Align::kLeft});
  if (o.recompute) columns.push_back({"recompute", Table::Align::kLeft});
  if (runs) columns.push_back({"run", Table::Align::kLeft});
  columns.push_back({unit.head("step")});
  columns.push_back({"fits", Table::Align::kLeft});
  columns.push_back({"90 % interval", Table::Align::kRight, true});
  columns.push_back({"P(best)", Table::Align::kRight, true});
  columns.push_back({"memory [GB]", Table::Align::kRight, true});
  Table table(columns);
  for (const RankedPlan& plan : r.best) {
    const Parallel& p = plan.scenario->parallel;
    const models::Answer& f = plan.answer;
    std::vector<std::string> row;
    for (const auto& [name, size] : sizes) row.push_back(fmt::format("{}", p.*size));
    row.push_back(fmt::format("{} x {}", p.microbatches, p.micro_batch));
    row.push_back(plan.scenario->dispatchers.front().text());
    if (o.recompute) row.push_back(plan.scenario->training.recompute.text());
    if (runs) row.push_back(run_text(*plan.scenario, o));
    row.push_back(unit.number(f.time_us.value));
    row.emplace_back(f.memory.fits ? "yes" : "no");
    row.push_back(fmt::format("{} to {}", unit.number(f.time_us.low), unit.number(f.time_us.high)));
    row.push_back(fmt::format("{:.2f}", plan.probability));
    row.push_back(fmt::format("{:.1f}", f.memory.max_bytes * 1e-9));
    table.row(std::move(row));
  }
  return table;
}

// "The best plan found takes 8.54 s a step: --ep 2 ... with flex-deepep."
std::string answer_of(const PlanSearchResult& r, const models::PlanSearchOptions& o) {
  const RankedPlan& best = r.best.front();
  std::string text =
      fmt::format("The best plan found takes {} a step: {} with {}.", format_us(best.answer.time_us.value),
                  models::plan_options(*best.scenario), best.scenario->dispatchers.front().text());
  const auto tied = std::ranges::count_if(r.best, [](const RankedPlan& plan) { return plan.tie_group == 0; });
  if (tied > 1) text += fmt::format(" No draw tells the first {} apart surely.", tied);
  if (!best.answer.memory.fits)
    text += fmt::format(" It misses {} of memory; --under memory leaves out what does not fit.",
                        format_bytes(best.answer.memory.missing_bytes));
  else if (!o.under_memory &&
           !std::ranges::all_of(r.best, [](const RankedPlan& plan) { return plan.answer.memory.fits; }))
    text += " --under memory leaves out what does not fit.";
  return text;
}

// A plan needs a training step: sets scope step where no scope was given.
models::Scenario of_step(models::Scenario scenario) {
  if (!scenario.is_step() && scenario.gave("scope"))
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
  const models::RankedPlan& first = r.best.front();
  print_answer(answer_of(r, options));
  print("\n" + people_plan_table(r, options).text());
  print_text(fmt::format("\n{} on {}: {} GPUs, {} tokens a step\n", first.scenario->model.name,
                         machine_text(*first.scenario), first.answer.gpus,
                         models::format_count(first.answer.tokens)),
             2);
  print_text(
      fmt::format(
          "{} combinations: {} forecast, {} surely no faster, {} do not fit the memory, {} illegal, {} "
          "left open; {}.\n",
          r.candidates, r.forecast, r.slower, r.does_not_fit, r.illegal, r.skipped, r.method),
      2);
  if (!options.dispatcher && scenario.dispatchers.size() > 1)
    print_text("Add dispatcher to --best to search dispatchers, too.\n");
  if (framework) print(plan_arguments_text(*first.scenario, *framework));
  std::vector<models::Answer> answers;
  for (const RankedPlan& plan : r.best) answers.push_back(plan.answer);
  warn_below(common, to_act_on(warnings, *first.scenario->cluster, answers));
  if (!common.quiet) say(fmt::format("{} plans in {:.1f} s\n", r.candidates - r.skipped, seconds));
  return 0;
}

}  // namespace moesim::tools
