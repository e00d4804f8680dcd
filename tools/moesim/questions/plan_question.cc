#include "tools/moesim/questions/plan_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/rental_list.h"
#include "models/question/apply_recipe.h"
#include "replay/recording/recorded_routing.h"
#include "tools/moesim/read/argument_checks.h"

namespace moesim::tools {

namespace {

// Parses "60d", "8w", "60" to days.
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

double parse_power(std::string_view text) {
  for (const auto& [unit, watts] : {std::pair<std::string_view, double>{"kW", 1e3}, {"MW", 1e6}, {"W", 1}})
    if (text.ends_with(unit))
      if (const auto number = parse_number(trim(text.substr(0, text.size() - unit.size())));
          number && *number > 0)
        return *number * watts;
  throw InputError(
      fmt::format("--power: found {}, expected a number of kW or MW, as in 500kW", in_quotes(text)));
}

// Parses "40M$", "$40M", "40M".
double parse_money(std::string_view text) {
  std::string_view amount = trim(text);
  if (amount.starts_with('$')) amount.remove_prefix(1);
  if (amount.ends_with('$')) amount.remove_suffix(1);
  return models::parse_count("--budget", amount);
}

// Returns the machines to try: the named ones, or one for each GPU with a price.
std::vector<models::RunMachine> machines_of(const std::string& named, const models::Scenario& s,
                                            const models::PriceTable& prices, double tokens,
                                            double deadline_days, bool limited) {
  std::vector<std::shared_ptr<const models::Cluster>> clusters;
  if (!named.empty()) {
    if (s.cluster) throw InputError("--clusters: found beside a cluster, expected one of them");
    for (const std::string_view name : split(named, ','))
      clusters.push_back(
          std::make_shared<const models::Cluster>(models::Cluster::load(std::string(trim(name)))));
  } else if (s.cluster) {
    clusters.push_back(s.cluster);
  } else {
    models::PriceTable priced = prices.by_profile.empty() ? models::RentalList::shipped().prices() : prices;
    priced.by_profile.insert(s.ownership.buy.by_profile.begin(), s.ownership.buy.by_profile.end());
    for (const auto& [profile, price] : priced.by_profile)
      clusters.push_back(std::make_shared<const models::Cluster>(models::Cluster::load(profile)));
  }
  std::vector<models::RunMachine> machines;
  for (auto& cluster : clusters) {
    models::RunMachine machine{cluster, {}};
    if (s.gpus > 0)
      machine.gpus = {s.gpus};
    else if (cluster->node_count != models::Cluster::NodeCount::kGiven)
      machine.gpus = models::usual_gpus(s.model, *cluster, tokens, deadline_days, limited);
    machines.push_back(std::move(machine));
  }
  return machines;
}

// Throws InputError for a price to buy a machine that is not looked at.
void check_bought(const models::RunQuestion& q) {
  for (const auto& bought : q.ownership.buy.by_profile)
    if (std::ranges::none_of(q.machines, [&](const models::RunMachine& m) {
          return m.cluster->profile.name() == bought.first;
        }))
      throw InputError(
          fmt::format("--buy: found a price of {}, which is none of the machines, expected one "
                      "of theirs (--clusters)",
                      bought.first));
}

}  // namespace

void PlanQuestion::declare(CLI::App& app) {
  app.add_option("--tokens", tokens_, "Tokens of the training: 15T")->group(kQuestionGroup);
  app.add_option("--clusters", clusters_, "Machines to choose from: h100,dgx-b200x64 [all GPUs with a price]")
      ->group(kQuestionGroup);
  app.add_option("--deadline", deadline_, "60d, 8w: the cheapest plan that surely keeps it")
      ->group(kQuestionGroup);
  app.add_option("--budget", budget_, "40M$: the fastest plan that surely stays in it")
      ->group(kQuestionGroup);
  app.add_option("--power", power_, "500kW, 2MW: what all nodes draw at their peak, without cooling")
      ->group(kQuestionGroup);
  app.add_option("--by", by_, "What is saved beside that: cost or time")
      ->check(CLI::IsMember({"cost", "time"}))
      ->group(kQuestionGroup);
  app.add_option("--most", most_, fmt::format("Forecasts of a search at most [{}]", most_))
      ->check(CLI::Range(1, 10000000))
      ->group(kQuestionGroup);
  app.add_option("--framework-version", version_,
                 "Megatron-Core's, whose rules its plans keep: 0.16 [newest]")
      ->group(kQuestionGroup);
  app.add_option("--draws", draws_, "Draws of the profile for intervals; 0 for none [16]")
      ->check(CLI::Range(0, models::kMostDraws))
      ->group(kQuestionGroup);
}

std::vector<ScenarioPath> PlanQuestion::axes() {
  using models::FieldType;
  return {{"tokens", FieldType::kText, "that the model is trained on"},
          {"deadline", FieldType::kText, "60d, 8w"},
          {"budget", FieldType::kText, "40M$"}};
}

bool PlanQuestion::say(const std::string& path, const std::string& text) {
  if (path == "tokens")
    tokens_ = text;
  else if (path == "deadline")
    deadline_ = text;
  else if (path == "budget")
    budget_ = text;
  else
    return false;
  return true;
}

models::PriceTable PlanQuestion::prices(const models::Scenario& s) {
  models::PriceTable table = s.prices;
  models::PriceTable shipped = models::RentalList::shipped().prices();
  // Public lists say nothing beside a purchase in another currency.
  if (s.ownership.buy.given() && s.ownership.buy.currency != shipped.currency) return table;
  if (!table.given()) return shipped;
  // A price given for one GPU leaves the others unchanged.
  if (table.price == 0 && !table.per_node && table.currency == shipped.currency)
    table.by_profile.insert(shipped.by_profile.begin(), shipped.by_profile.end());
  return table;
}

void PlanQuestion::take_listed_rent(models::Scenario& s) {
  if ((s.ownership.kwh > 0 || s.ownership.buy.given()) && !s.prices.given()) s.prices = prices(s);
}

models::RunQuestion PlanQuestion::question(const Base& base, std::string& batch) const {
  models::RunQuestion q;
  q.scenario = base.resolved.scenario;
  models::Scenario& s = q.scenario;
  if (!s.is_step()) throw InputError("plan: found scope layer, expected step: a training is made of steps");
  if (s.model.hidden == 0) throw InputError("plan: found no model, expected --model NAME");
  if (!s.train) throw InputError("plan: found --inference, expected a training (serving is not priced)");
  if (tokens_.empty())
    throw InputError("plan: found no --tokens, expected how many are trained on, such as 15T");
  q.tokens = models::parse_count("--tokens", tokens_);
  // A job's microbatches made its batch on its GPUs; on others the batch stays.
  if (s.gave("parallel.microbatches") && !s.batch.given()) {
    if (!base.question.job)
      throw InputError(
          "plan: found --microbatches, expected --global-batch: microbatches follow from the plan");
    models::Scenario own = s;
    if (own.gpus_open()) own.gpus = base.question.job->gpus.count;
    own.resolve();
    s.batch.sequences = own.parallel.dp * own.parallel.microbatches * own.parallel.micro_batch;
    s.give("parallel.global_batch", s.origin_of("parallel.microbatches"));
    s.given.reset(models::index_of(*models::find_field("parallel.microbatches")));
  }
  // The launcher's GPUs are the job's current ones; the number needed is the question.
  if (base.question.job && s.origin_of("gpus").kind == Origin::Kind::kFile) s.gpus = 0;
  models::choose_batch(s);
  batch = s.origin_of("parallel.global_batch").kind == Origin::Kind::kModel
              ? s.origin_of("parallel.global_batch").where
              : "";
  models::take_usual_failures(s);
  q.prices = prices(s);
  q.ownership = s.ownership;
  if (!deadline_.empty()) q.deadline_days = parse_days(deadline_);
  if (!budget_.empty()) q.budget = parse_money(budget_);
  if (!power_.empty()) q.power_watts = parse_power(power_);
  q.machines = machines_of(clusters_, s, q.prices, q.tokens, q.deadline_days, q.budget > 0);
  const bool priced = std::ranges::any_of(q.machines, [&](const models::RunMachine& m) {
    return models::has_price(q.prices, q.ownership, *m.cluster);
  });
  if (!priced && q.budget > 0)
    throw InputError(fmt::format("--budget: found no price of {}, expected one: --prices {}=2.50",
                                 q.machines.front().cluster->name,
                                 q.machines.front().cluster->profile.name()));
  if (!priced) q.prices = models::PriceTable::gpu_hours();
  q.ownership.check_beside(q.prices);
  check_bought(q);
  q.prices.currency = models::currency_of(q.prices, q.ownership);
  s.cluster = nullptr;
  s.gpus = 0;
  s.prices = {};
  s.ownership = {};
  // A limited quantity is not the one to minimise; with a given number of GPUs only time remains.
  q.by = by_ == "time" || (by_.empty() && q.deadline_days == 0 && (q.budget > 0 || q.machines.size() == 1))
             ? models::RunQuestion::By::kTime
             : models::RunQuestion::By::kCost;
  q.draws = draws_;
  // probability_below() adds one uninformative draw, so fewer than 4 draws can never reach kSure.
  constexpr int kFewestDraws = 4;
  if (draws_ > 0 && draws_ < kFewestDraws && (q.deadline_days > 0 || q.budget > 0))
    throw InputError(fmt::format("--draws: found {} with a {}, expected {} or more for probabilities, or 0",
                                 draws_, q.deadline_days > 0 ? "deadline" : "budget", kFewestDraws));
  q.most = most_;
  q.take_recipe = models::take_recipe;
  q.spread = models::plan_spread();
  if (!version_.empty() && rules_of(s) != "megatron")
    throw InputError(fmt::format(
        "plan: found --framework-version with {}, expected a plan of Megatron, whose rules have versions",
        s.recipe.empty() ? s.job_framework : s.recipe));
  q.refused = framework_rules(version());
  replay::open_routing(s.routing);
  return q;
}

int PlanQuestion::version() const { return version_.empty() ? 0 : framework_version(version_); }

void PlanQuestion::read_inputs() const {
  if (clusters_.empty()) return;
  for (const std::string_view name : split(clusters_, ',')) models::Cluster::load(std::string(trim(name)));
}

std::vector<std::pair<std::string, std::string>> PlanQuestion::said() const {
  std::vector<std::pair<std::string, std::string>> all{
      {"tokens", tokens_}, {"clusters", clusters_}, {"deadline", deadline_}, {"budget", budget_},
      {"by", by_},         {"power", power_}};
  std::erase_if(all, [](const auto& one) { return one.second.empty(); });
  if (!version_.empty()) all.emplace_back("framework_version", version_);
  all.emplace_back("most", std::to_string(most_));
  all.emplace_back("draws", std::to_string(draws_));
  return all;
}

}  // namespace moesim::tools
