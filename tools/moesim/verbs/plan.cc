// `moesim plan`: on which machine, with which plan a model is trained on so many tokens, how long that takes
// and what it costs.
#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/answers/training_run.h"
#include "models/hardware/rental_list.h"
#include "replay/recording/routing_from_dispatching.h"
#include "tools/moesim/questions/inputs.h"
#include "tools/moesim/questions/scenario_options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/progress.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/training_run.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct PlanOptions {
  ScenarioOptions scenario;
  std::string tokens, clusters, budget, deadline, prices, by;
  double kwh = 0;
  bool no_upgrades = false;
  int draws = 16, top = 10;
  std::int64_t most = 800;
  std::string report;
};

// "60d", "8w", "60": days.
double parse_days(std::string_view text) {
  const std::string_view whole = trim(text);
  double times = 1;
  std::string_view digits = whole;
  for (const auto& [ending, days] :
       {std::pair{"days", 1.0}, {"d", 1.0}, {"weeks", 7.0}, {"w", 7.0}, {"h", 1 / 24.0}})
    if (whole.ends_with(ending)) {
      times = days;
      digits = trim(whole.substr(0, whole.size() - std::string_view(ending).size()));
      break;
    }
  const auto value = parse_number(digits);
  if (!value || !(*value > 0) || *value > 1e6)
    throw InputError(fmt::format("--deadline: found {}, expected days such as 60d or 8w", in_quotes(text)));
  return *value * times;
}

// "40M$", "$40M", "40M".
double parse_money(std::string_view text) {
  std::string_view amount = trim(text);
  if (amount.starts_with('$')) amount.remove_prefix(1);
  if (amount.ends_with('$')) amount.remove_suffix(1);
  return models::parse_count("--budget", amount);
}

// The machines that are looked at: those that were named, or one of each GPU with a price.
std::vector<models::RunMachine> machines_of(const PlanOptions& o, const models::Scenario& s,
                                            const models::PriceTable& prices, double tokens) {
  std::vector<std::shared_ptr<const models::Cluster>> clusters;
  if (!o.clusters.empty()) {
    if (s.cluster) throw InputError("--clusters: found beside a cluster, expected one of them");
    for (const std::string_view name : split(o.clusters, ','))
      clusters.push_back(
          std::make_shared<const models::Cluster>(models::Cluster::load(std::string(trim(name)))));
  } else if (s.cluster) {
    clusters.push_back(s.cluster);
  } else {
    const models::PriceTable priced =
        prices.by_profile.empty() ? models::RentalList::shipped().prices() : prices;
    for (const auto& [profile, price] : priced.by_profile)
      clusters.push_back(std::make_shared<const models::Cluster>(models::Cluster::load(profile)));
  }
  std::vector<models::RunMachine> machines;
  for (auto& cluster : clusters) {
    models::RunMachine machine{cluster, {}};
    if (s.gpus > 0)
      machine.gpus = {s.gpus};
    else if (cluster->node_count != models::Cluster::NodeCount::kGiven)
      machine.gpus = models::usual_gpus(s.model, *cluster, tokens);
    machines.push_back(std::move(machine));
  }
  return machines;
}

models::RunQuestion question_of(const PlanOptions& o, const CommonOptions& common, std::string& batch) {
  models::RunQuestion q;
  ScenarioOptions options = o.scenario;
  options.say_unsaid("scope", "step");
  q.scenario = options.scenario(common);
  models::Scenario& s = q.scenario;
  if (s.scope != models::Scenario::Scope::kStep)
    throw InputError("plan: found scope layer, expected step: a training is made of steps");
  if (options.searches())
    throw InputError(
        "--search: found with plan, which searches what nobody says; expected it with another verb");
  if (s.model.hidden == 0) throw InputError("plan: found no model, expected --model NAME");
  if (!s.train) throw InputError("plan: found --inference, expected a training");
  if (o.tokens.empty())
    throw InputError("plan: found no --tokens, expected how many are trained on, such as 15T");
  q.tokens = models::parse_count("--tokens", o.tokens);
  if (s.gave("parallel.microbatches") && !s.batch.given())
    throw InputError(
        "plan: found --microbatches, expected --global-batch: microbatches follow from the plan");
  batch = models::choose_batch(s);
  if (s.faults.gpu_mtbf_hours == 0) {
    const models::Faults usual = models::usual_failures();
    s.faults.gpu_mtbf_hours = usual.gpu_mtbf_hours;
    if (s.faults.checkpoint_s == 0) s.faults.checkpoint_s = usual.checkpoint_s;
    if (s.faults.restart_s == 0) s.faults.restart_s = usual.restart_s;
  }
  if (!o.prices.empty() && s.prices.given())
    throw InputError("--prices: found beside the scenario's prices, expected one of them");
  q.prices = !o.prices.empty()  ? models::PriceTable::parse(JsonNode::read(o.prices))
             : s.prices.given() ? s.prices
                                : models::RentalList::shipped().prices();
  q.machines = machines_of(o, s, q.prices, q.tokens);
  s.cluster = nullptr;
  s.gpus = 0;
  s.prices = {};
  if (!o.deadline.empty()) q.deadline_days = parse_days(o.deadline);
  if (!o.budget.empty()) q.budget = parse_money(o.budget);
  // What was limited is not what is saved; with a number of GPUs alone, time is what there is to save.
  q.by = o.by == "time" || (o.by.empty() && q.deadline_days == 0 && (q.budget > 0 || q.machines.size() == 1))
             ? models::RunQuestion::By::kTime
             : models::RunQuestion::By::kCost;
  q.kwh_price = o.kwh;
  q.upgrades = !o.no_upgrades;
  q.draws = o.draws;
  q.most = o.most;
  q.threads = common.threads;
  replay::open_routing(s.routing);
  return q;
}

int run_plan(const PlanOptions& o, const CommonOptions& common) {
  check_report(common.report);
  std::string batch;
  models::RunQuestion q = question_of(o, common, batch);
  const models::RunAnswer a = [&] {
    ProgressLine line(common);
    q.progress = line.teller();
    return models::plan_run(q);
  }();
  const std::vector<std::string> warnings = training_run_warnings(a);
  if (wants_result(common)) {
    nlohmann::ordered_json inputs = describe_inputs(common);
    inputs["scenario"] = models::to_json(q.scenario);
    nlohmann::ordered_json result = envelope("plan", inputs, warnings);
    add_model(result, q.scenario);
    add_training_run(result, q, a, batch);
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(training_run_csv(a));
    return 0;
  }
  print(training_run_text(q, a, batch, o.top));
  warn_below(common, warnings);
  return 0;
}

}  // namespace

Verb plan_verb() {
  return {
      "plan", "from a model and its tokens to a machine, a plan, the days and the money",
      "  moesim plan --model deepseek-v3 --tokens 14.8T --cluster h800 --gpus 2048 --prices my_prices.json\n"
      "  moesim plan --model qwen3-30b-a3b --tokens 2T --clusters h100,h200,b200 --deadline 30d",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<PlanOptions>();
        constexpr const char* kGroup = "Question";
        app.add_option("--tokens", o->tokens, "That the model is trained on: 15T")->group(kGroup);
        app.add_option(
               "--clusters", o->clusters,
               "Machines to choose from, joined with commas, with their nodes or without: h100,dgx-b200x64 "
               "[one of each GPU with a price]")
            ->group(kGroup);
        app.add_option("--deadline", o->deadline, "60d, 8w: the cheapest plan that surely keeps it")
            ->group(kGroup);
        app.add_option("--budget", o->budget, "40M$: the fastest plan that surely stays in it")
            ->group(kGroup);
        app.add_option("--by", o->by, "What is saved beside that: cost or time")
            ->check(CLI::IsMember({"cost", "time"}))
            ->group(kGroup);
        app.add_option(
               "--prices", o->prices,
               "JSON file: gpu_hour or node_hour, a number or one per profile; currency [public lists]")
            ->group(kGroup);
        app.add_option("--kwh", o->kwh, "Price of a kWh, where the rent has no power in it [0]")
            ->check(CLI::Range(0.0, 1e3))
            ->group(kGroup);
        app.add_flag("--no-upgrades", o->no_upgrades, "Without what a faster network or GPU is worth")
            ->group(kGroup);
        app.add_option("--top", o->top, "Plans shown [10]")->check(CLI::Range(1, 1000))->group(kGroup);
        app.add_option("--most", o->most,
                       "Forecasts at most of the first search; the others start from its best and take a "
                       "quarter [800]")
            ->check(CLI::Range(1, 10000000))
            ->group(kGroup);
        app.add_option("--draws", o->draws, "Draws of the profile for intervals; 0 for none [16]")
            ->check(CLI::Range(0, models::kMostDraws))
            ->group(kGroup);
        o->scenario.declare(app);
        declare_report(app, o->report);
        return [o](const CommonOptions& common) {
          CommonOptions with_report = common;
          with_report.report = o->report;
          return run_plan(*o, with_report);
        };
      }};
}

}  // namespace moesim::tools
