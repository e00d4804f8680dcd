#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "models/answers/plan_search.h"
#include "models/answers/plan_space.h"
#include "models/hardware/cluster.h"
#include "models/workload/global_batch.h"
#include "replay/recording/recorded_routing.h"
#include "tools/moesim/questions/whatif.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::PlanSearchResult;
using models::RankedPlan;
using nlohmann::ordered_json;

models::PlanSearchOptions options_of(const WhatifBest& o, const CommonOptions& common) {
  models::PlanSearchOptions options;
  std::map<std::string_view, bool*> axes{{"parallel", &options.parallel}};
  for (const models::SearchedSetting& one : models::searched_settings())
    axes[one.word()] = &(options.*one.searched);
  for (const auto& [name, searched] : axes) *searched = false;
  for (const std::string_view text : split(o.axes, ',')) {
    const auto found = axes.find(trim(text));
    if (found == axes.end()) {
      std::vector<std::string> names{"parallel"};
      for (const models::SearchedSetting& one : models::searched_settings()) names.emplace_back(one.word());
      throw InputError(fmt::format("--best: found {}, expected any of {}, joined with commas{}",
                                   in_quotes(trim(text)), join(names, ", "),
                                   did_you_mean(trim(text), names)));
    }
    *found->second = true;
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

// Returns the searched settings of a plan besides its parallel sizes, dispatcher and recomputation.
std::string run_text(const models::Scenario& s, const models::PlanSearchOptions& o) {
  std::vector<std::string> parts;
  for (const models::SearchedSetting& one : models::searched_settings())
    if (o.*one.searched && one.word() != "dispatcher" && one.word() != "recompute" && one.word() != "overlap")
      parts.push_back(models::setting_text(s, one.path));
  const models::StepOverlap& overlap = s.training.overlap;
  if (o.overlap && overlap.expert_communication)
    parts.emplace_back(overlap.delayed_wgrad ? "overlapped, delayed wgrad" : "overlapped");
  return join(parts, ", ");
}

// The row of a plan, as CSV and for people, who see no size that all plans leave at 1 and no setting that was not
// searched.
Columns<RankedPlan> plan_columns(const PlanSearchResult& r, const models::PlanSearchOptions& o) {
  using Plan = RankedPlan;
  double longest = 0;
  for (const Plan& plan : r.best) longest = std::max(longest, plan.answer.time_us.value);
  const TimeUnit unit = TimeUnit::of(longest);
  Columns<Plan> all;
  for (const auto& [path, name, size] : models::kParallelSizes) {
    const auto value = [size = size](const Plan& plan) { return plan.scenario->parallel.*size; };
    const bool usual = std::string_view(name).size() != 3 && name[0] != 'C';
    const bool many = std::ranges::any_of(r.best, [&](const Plan& plan) { return value(plan) > 1; });
    all.add({{path, value, "", many || usual ? Head(name) : Head()}});
  }
  all.add({{"parallel.microbatches", [](const Plan& p) { return p.scenario->parallel.microbatches; }, "",
            "microbatches"}});
  for (const models::SearchedSetting& one : models::searched_settings()) {
    const bool dispatcher = one.word() == "dispatcher";
    const auto value = [dispatcher, path = one.path](const Plan& plan) {
      return dispatcher ? plan.scenario->dispatchers.front().text()
                        : models::setting_text(*plan.scenario, path);
    };
    const bool shown = dispatcher || (o.recompute && one.word() == "recompute");
    all.add({{one.path, value, "", shown ? Head(std::string(one.word()).c_str()) : Head()}});
  }
  const bool runs = o.precision || o.schedule || o.launch || o.sharding || o.overlap;
  const auto time = [](const Plan& plan) { return plan.answer.time_us; };
  const auto answer = [](const Plan& plan) -> const auto& { return plan.answer; };
  all.add(
      {{"", [o](const Plan& plan) { return run_text(*plan.scenario, o); }, "", runs ? "run" : Head()},
       {"", [](const Plan& plan) { return plan.answer.time_us.value; }, "",
        time_head(unit.head("step"), unit)},
       {"", [unit](const Plan& plan) { return interval(plan.answer.interval(), unit); }, "", "90 % interval"},
       {"time_us", time}});
  all.add(
         figures().some({"tflops_per_gpu", "peak_memory_bytes", "fits", "fits_probability", "missing_bytes"}),
         answer)
      .add(memory_for_people(), answer);
  return all.add({{"probability", &Plan::probability, "", {"P(best)", 2}},
                  {"tie_group", &Plan::tie_group},
                  {"tokens_per_s_per_gpu", [](const Plan& p) { return p.answer.tokens_per_s_per_gpu(); }},
                  {"mfu", [](const Plan& p) { return p.answer.mfu; }}});
}

// A plan stands by the keys of its complete scenario.
Columns<PlanSearchResult> columns_of(std::optional<JobFramework> framework) {
  using R = PlanSearchResult;
  const Columns<RankedPlan> plan{
      {"dispatcher", [](const RankedPlan& p) { return p.scenario->dispatchers.front().text(); }},
      {"probability", &RankedPlan::probability, "share of the draws in which it is the fastest of these"},
      {"tie_group", &RankedPlan::tie_group, "draws do not tell plans of one group apart surely"},
      {"forecast", [](const RankedPlan& p) { return answer_json(p.answer, *p.scenario); },
       as_in("compare.schema.json#/properties/scenarios/items")}};
  ordered_json item = plan.schema();
  item.erase("additionalProperties");
  const auto best = [plan](const R& r) {
    std::vector<ordered_json> all;
    for (const RankedPlan& one : r.best)
      all.emplace_back(models::to_json(*one.scenario)).update(plan.json(one));
    return all;
  };
  using Rule = std::pair<std::string, std::int64_t>;
  const auto rules = [](const R& r) {
    std::vector<Rule> all(r.rules.begin(), r.rules.end());
    std::ranges::stable_sort(all, std::greater(), &Rule::second);
    return all;
  };
  Columns<R> plans{{"candidates", &R::candidates, "combinations"},
                   {"forecast", &R::forecast},
                   {"does_not_fit", &R::does_not_fit},
                   {"illegal", &R::illegal},
                   {"slower", &R::slower, "surely no faster"},
                   {"skipped", &R::skipped, "left open"}};
  plans
      .list("rules", Columns<Rule>{{"rule", &Rule::first}, {"plans", &Rule::second, "that it excluded"}},
            rules)
      .add({{"space", &R::space}});
  const auto arguments = [framework](const R& r) {
    return framework ? std::optional(
                           job_arguments_json(arguments_of(*r.best.front().scenario, *framework), *framework))
                     : std::nullopt;
  };
  return {{"best", best, {"scenarios, the fastest first, each with its forecast", {{"items", item}}}},
          {"plans", plans},
          {"method", &R::method},
          {"arguments?", arguments, as_in("compare.schema.json#/properties/arguments")}};
}

ordered_json schema_of_best() { return columns_of(std::nullopt).schema(); }
const ResultSchema kBest("whatif", "whatif --best", with_model<schema_of_best>);

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

int whatif_best(const Base& base, const WhatifBest& o, const CommonOptions& common) {
  models::PlanSearchOptions options = options_of(o, common);
  models::Scenario scenario = of_step(base.resolved.asked);
  // The compared dispatchers are the ones to search.
  if (scenario.dispatchers.size() > 1) scenario.give("dispatcher");
  std::optional<JobFramework> framework;
  if (!o.arguments.empty()) framework.emplace(framework_named(o.arguments));
  options.refused = framework_rules(0, framework);
  if (framework && common.format == Format::kCsv)
    throw InputError("whatif: found --arguments with --format csv, expected table or json");
  const PlanSearchResult r = [&] {
    ProgressLine line(common);
    options.progress = line.teller();
    return models::search_plans(opened(scenario), options);
  }();
  const RankedPlan& first = r.fastest();
  std::vector<std::string> warnings;
  std::vector<models::Answer> answers;
  for (const RankedPlan& plan : r.best) {
    add_new(warnings, plan.answer.warnings);
    answers.push_back(plan.answer);
  }
  const Columns<RankedPlan> columns = plan_columns(r, options);
  ordered_json rows = ordered_json::array();
  for (const RankedPlan& plan : r.best) rows.push_back(columns.json(plan));
  return show_whatif(base, warnings, columns_of(framework).json(r), rows, common, [&] {
    print_answer(answer_of(r, options));
    print("\n" + people_table(columns, r.best, {"microbatches", "90 % interval", "P(best)"}).text());
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
    warn_below(common, to_act_on(warnings, *first.scenario->cluster, answers));
  });
}

}  // namespace moesim::tools
