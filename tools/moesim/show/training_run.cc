#include "tools/moesim/show/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/answers/doubt.h"
#include "models/answers/plan_search.h"
#include "models/hardware/rental_list.h"
#include "models/step/step_forecast.h"
#include "models/workload/fields.h"
#include "models/workload/global_batch.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::PricedTraining;
using models::RunAnswer;
using models::RunQuestion;
using nlohmann::ordered_json;

constexpr std::size_t kNamed = 3;   // machines without a plan that the answer names
constexpr double kNoDoubt = 0.995;  // shown as 1.00

std::string number(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

// "$19.0 M".
std::string money(double value, const std::string& currency) {
  const bool after = currency == models::PriceTable::kGpuHours;
  const std::string sign = currency == "USD" ? "$"
                           : after           ? ""
                                             : currency + " ",
                    end = after ? " " + currency : "";
  for (const auto& [size, letter] : {std::pair{1e9, " B"}, {1e6, " M"}, {1e3, " k"}})
    if (value >= size) return fmt::format("{}{}{}{}", sign, number(value / size), letter, end);
  return sign + number(value) + end;
}

std::string value_of(const models::Scenario& s, const char* path) {
  const ordered_json value = models::find_field(path)->write(s);
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

std::string overlap_of(const models::Scenario& s) {
  const models::StepOverlap& o = s.training.overlap;
  std::vector<std::string> parts;
  if (o.expert_communication) parts.emplace_back("expert-communication");
  if (o.delayed_wgrad) parts.emplace_back("delayed-wgrad");
  if (o.gradients) parts.emplace_back("gradients");
  if (o.parameters) parts.emplace_back("parameters");
  return parts.empty() ? "none" : join(parts, "+");
}

}  // namespace

std::vector<std::string> plan_words(const PricedTraining& p) {
  models::Scenario s = *p.scenario;
  // Failures concern the whole training, not the step of the command.
  if (!s.gave("faults.gpu_mtbf_hours")) s.faults = {};
  return command_words(s);
}

std::string plan_command(const PricedTraining& p) {
  std::vector<std::string> words = plan_words(p);
  for (std::string& word : words) word = shell_word(word);
  return join(words, " ");
}

namespace {

// Returns the rent of a training on rented machines; 0: it is not known.
double rent_cost(const PricedTraining& p) {
  constexpr double kHours = 24;
  return p.hour.rent * p.days.value * kHours;
}

std::string paragraph(const std::string& text) { return wrapped(text, sentence_columns()) + "\n"; }

// Describes a training: "2048 GPUs (dgx-h200x256), 61.3 days (52.1 to 75.0), $19.0 M (16.1 to 23.2)".
std::string in_words(const PricedTraining& p, const std::string& currency) {
  return fmt::format("{} GPUs ({}), {} days ({} to {}), {} ({} to {})", p.gpus, p.scenario->cluster->name,
                     number(p.days.value), number(p.days.low), number(p.days.high),
                     money(p.cost.value, currency), money(p.cost.low, currency),
                     money(p.cost.high, currency));
}

// Returns "A", "B", ..., "AA" for groups of plans that draws do not distinguish.
std::string letters(int group) {
  std::string name(1, static_cast<char>('A' + group % 26));
  return group < 26 ? name : letters(group / 26 - 1) + name;
}

// Plans of another precision are lettered from A again.
std::string group_name(const RunAnswer& a, const PricedTraining& p) {
  const auto first = std::find_if(a.plans.begin(), a.plans.end(),
                                  [&](const PricedTraining& one) { return one.other == p.other; });
  return letters(p.tie_group - first->tie_group);
}

// Formats two digits, or as many as show that it is below the sure threshold.
std::string probability_text(double p) {
  constexpr double kSure = models::Decision::kSure;
  const bool rounds_up = p < kSure && p >= kSure - 0.005;
  return fmt::format("{:.{}f}", rounds_up ? std::min(p, kSure - 0.001) : p, rounds_up ? 3 : 2);
}

// Describes the limits besides the tokens, with the probability that a plan meets them.
std::string promise(const RunQuestion& q, const PricedTraining& p) {
  std::vector<std::string> parts;
  if (q.deadline_days > 0)
    parts.push_back(fmt::format("done in {:.3g} days with probability {}", q.deadline_days,
                                probability_text(p.deadline_probability)));
  if (q.budget > 0)
    parts.push_back(fmt::format("within {} with probability {}", money(q.budget, q.prices.currency),
                                probability_text(p.budget_probability)));
  return parts.empty() ? "" : "; " + join(parts, ", ");
}

// Names the limit (deadline, budget, both) that no plan meets: "no plan is done in 8 days with probability 0.9".
std::string missed(const RunQuestion& q, const RunAnswer& a) {
  constexpr double kSure = models::Decision::kSure;
  const auto some = [&](double PricedTraining::*probability) {
    return std::ranges::any_of(a.plans,
                               [&](const PricedTraining& p) { return !p.other && p.*probability >= kSure; });
  };
  const bool in_time = some(&PricedTraining::deadline_probability),
             in_budget = some(&PricedTraining::budget_probability);
  const std::string done = fmt::format("is done in {:.3g} days", q.deadline_days),
                    within = "stays within " + money(q.budget, q.prices.currency);
  return fmt::format("no plan {} with probability {}",
                     in_time && in_budget ? fmt::format("both {} and {}", done, within)
                     : in_time            ? within
                     : in_budget          ? done
                                          : fmt::format("{}, and none {}", done, within),
                     kSure);
}

std::string answer_sentence(const RunQuestion& q, const RunAnswer& a) {
  const PricedTraining& best = a.plans.front();
  const std::string what =
      fmt::format("{} on {} tokens: ", q.scenario.model.name, models::format_count(q.tokens));
  std::string text = what;
  if (!best.meets) text += missed(q, a) + "; the nearest takes ";
  text += in_words(best, q.prices.currency) + promise(q, best) + ".";
  const auto tied = std::count_if(a.plans.begin(), a.plans.end(),
                                  [&](const PricedTraining& p) { return p.tie_group == best.tie_group; });
  if (tied > 1)
    text += fmt::format(" {} other{} of group A may be as good: no draw tells {} apart surely.", tied - 1,
                        tied > 2 ? "s" : "", tied > 2 ? "them" : "it");
  if (best.answer.memory.fits_probability < kNoDoubt)
    text += fmt::format(" It fits the memory with probability {:.2f}.", best.answer.memory.fits_probability);
  std::vector<std::string> without;
  for (const RunAnswer::LeftOut& one : a.left_out)
    if (one.machine) without.push_back(one.what);
  if (!without.empty())
    text += fmt::format(
        " Without a plan: {}{}.",
        join(std::vector(without.begin(),
                         without.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, without.size()))),
             ", "),
        without.size() > kNamed ? fmt::format(" and {} more", without.size() - kNamed) : "");
  return text;
}

Table plan_table(const RunQuestion& q, const RunAnswer& a, int top) {
  const bool promised = q.deadline_days > 0 || q.budget > 0;
  const bool idle =
      std::any_of(a.plans.begin(), a.plans.end(), [](const PricedTraining& p) { return p.idle_gpus > 0; });
  std::vector<Table::Column> columns{{"", Table::Align::kLeft}, {"cluster", Table::Align::kLeft}, {"GPUs"}};
  if (idle) columns.push_back({"idle"});
  for (const char* name : {"days", "cost"}) columns.push_back({name});
  if (promised) columns.push_back({"P"});
  for (const char* name : {"TP", "PP", "VPP", "EP"}) columns.push_back({name, Table::Align::kRight, true});
  columns.push_back({"dispatcher", Table::Align::kLeft});
  columns.push_back({"MFU"});
  Table table(columns);
  int shown = 0;
  for (const PricedTraining& p : a.plans) {
    if (p.other || shown++ >= top) continue;
    const models::Parallel& plan = p.scenario->parallel;
    std::vector<std::string> row{group_name(a, p) + (p.on_frontier ? "*" : ""), p.scenario->cluster->name,
                                 std::to_string(p.gpus)};
    if (idle) row.push_back(std::to_string(p.idle_gpus));
    row.push_back(number(p.days.value));
    row.push_back(money(p.cost.value, q.prices.currency));
    if (promised) row.push_back(probability_text(std::min(p.deadline_probability, p.budget_probability)));
    for (const std::int64_t size : {plan.tp, plan.pp, plan.vpp, plan.ep}) row.push_back(std::to_string(size));
    row.push_back(p.scenario->dispatchers.front().text());
    row.push_back(fmt::format("{:.0f} %", 100 * p.answer.mfu));
    table.row(std::move(row));
  }
  return table;
}

// The best plan with products in a lower precision, in a sentence; the page, JSON and CSV have all.
std::string other_precision_text(const RunQuestion& q, const RunAnswer& a) {
  const auto best = std::ranges::find_if(a.plans, &PricedTraining::other);
  if (best == a.plans.end()) return "";
  const models::Parallel& plan = best->scenario->parallel;
  const auto more = std::ranges::count_if(a.plans, &PricedTraining::other) - 1;
  return paragraph(fmt::format(
      "With products in a lower precision, which changes the numerics: {}, {} days, {} with {} (TP {}, PP {}, "
      "EP {}, {}){}.",
      best->scenario->training.precision, number(best->days.value),
      money(best->cost.value, q.prices.currency), best->scenario->cluster->name, plan.tp, plan.pp, plan.ep,
      best->scenario->dispatchers.front().text(),
      more > 0 ? fmt::format("; {} more in --format json", more) : ""));
}

std::string upgrade_text(const RunQuestion& q, const RunAnswer& a) {
  if (a.upgrades.empty()) return "";
  const std::string& currency = q.prices.currency;
  Table table({{"upgrade of the best plan", Table::Align::kLeft},
               {"days"},
               {"saved (90 %)", Table::Align::kLeft},
               {"worth"},
               {"at most", Table::Align::kRight, true},
               {"listed", Table::Align::kRight, true}});
  for (const models::Upgrade& u : a.upgrades)
    table.row(
        {u.change, number(u.days.value),
         fmt::format("{:.1f} ({:.1f} to {:.1f})", u.saved_days.value, u.saved_days.low, u.saved_days.high),
         u.worth > 0 ? money(u.worth, currency) : "nothing",
         u.most_gpu_hour > 0 ? money(u.most_gpu_hour, currency) : "-",
         u.listed_gpu_hour > 0 ? money(u.listed_gpu_hour, currency) : "-"});
  return "\n" + table.text() +
         paragraph(
             "worth: the days saved, at this rent; at most: a GPU-hour with it that pays; listed: its rent");
}

// The price of a GPU-hour used here with its source; empty: the user's own.
struct UsedPrice {
  std::string profile;
  models::HourCost hour;  // of one GPU of whole nodes
  std::string source, read;
};

std::vector<UsedPrice> used_prices(const RunQuestion& q, const RunAnswer& a) {
  const models::RentalList& list = models::RentalList::shipped();
  std::map<std::string, std::shared_ptr<const models::Scenario>> machines;
  for (const PricedTraining& p : a.plans)
    machines.try_emplace(p.scenario->cluster->profile.name(), p.scenario);
  std::vector<UsedPrice> prices;
  for (const auto& [profile, scenario] : machines) {
    const models::Cluster& cluster = *scenario->cluster;
    UsedPrice used{profile,
                   models::hour_cost(q.prices, q.ownership, cluster, cluster.gpus_per_node)
                       .each(static_cast<double>(cluster.gpus_per_node)),
                   "", ""};
    const auto listed = list.gpu_hour.find(profile);
    if (listed != list.gpu_hour.end() && listed->second.value == used.hour.rent && !q.prices.per_node)
      used.source = listed->second.source, used.read = listed->second.read;
    prices.push_back(std::move(used));
  }
  return prices;
}

// "$0.80 of its price over 5 years, $0.40 hosting, $0.30 power".
std::string parts_text(const RunQuestion& q, const models::HourCost& hour) {
  const std::string& currency = q.prices.currency;
  const models::Ownership& own = q.ownership;
  std::string text =
      fmt::format("{} of its price over {:g} years", money(hour.capital, currency), own.years_used());
  text += hour.hosting > 0 ? fmt::format(", {} hosting", money(hour.hosting, currency)) : ", no hosting";
  text += hour.power > 0
              ? fmt::format(", {} power at a PUE of {:g}", money(hour.power, currency), own.pue_used())
              : ", no power";
  if (own.idle_share > 0) text += fmt::format("; {:.0f} % of them idle", 100 * own.idle_share);
  return text;
}

// Says what a plan's machine costs to buy, beside renting it.
std::string purchase_text(const RunQuestion& q, const PricedTraining& p) {
  if (!p.hour.bought) return "";
  const std::string& currency = q.prices.currency;
  std::string text = fmt::format(" Buying the {} GPUs takes {}", p.gpus, money(p.hour.purchase, currency));
  if (p.hour.rent > 0)
    text +=
        fmt::format("; renting them for this training {}{}", money(rent_cost(p), currency),
                    p.hour.pays_from <= 1
                        ? fmt::format(", which costs more where they work more than {:.0f} % of their years",
                                      100 * p.hour.pays_from)
                        : ", which always costs less");
  return text + ".";
}

std::string price_text(const RunQuestion& q, const RunAnswer& a) {
  if (q.prices.counts_gpu_hours())
    return fmt::format("No price is known: GPU-hours are counted, idle ones too; --prices {}=2.50 says one.",
                       a.plans.front().scenario->cluster->profile.name());
  std::vector<std::string> parts;
  for (const UsedPrice& p : used_prices(q, a)) {
    std::vector<std::string> beside;
    if (p.hour.bought) beside.push_back("bought: " + parts_text(q, p.hour));
    if (!p.hour.bought && !p.source.empty())
      beside.push_back(fmt::format("{}, {}", p.source.substr(0, p.source.find(',')), p.read));
    if (!p.hour.bought && p.hour.power > 0)
      beside.push_back(fmt::format("with {} of power at a PUE of {:g}",
                                   money(p.hour.power, q.prices.currency), q.ownership.pue_used()));
    parts.push_back(fmt::format("{} {}", p.profile, money(p.hour.total(), q.prices.currency)) +
                    (beside.empty() ? "" : " (" + join(beside, ", ") + ")"));
  }
  return "A GPU-hour: " + join(parts, ", ") + "; --prices FILE says other prices." +
         purchase_text(q, a.plans.front());
}

std::string failure_text(const PricedTraining& best) {
  const models::Faults& f = best.scenario->faults;
  if (f.gpu_mtbf_hours <= 0) return "";
  return fmt::format(" Failures (one in {:.0f} hours of a GPU) leave {:.1f} % of the time.", f.gpu_mtbf_hours,
                     100 * best.answer.goodput.share);
}

std::string gap_text(const RunAnswer& a) {
  return a.gap > 0 ? fmt::format("None is faster by more than {:.1f} %{}.", 100 * a.gap,
                                 a.exhaustive ? "" : "; --most allows more")
                   : "None is faster.";
}

std::string searched_text(const RunAnswer& a) {
  return fmt::format("{} plans in {} searches; {}. {}", a.candidates, a.searches, a.method, gap_text(a));
}

// Describes where the tokens of a step come from.
std::string batch_text(const PricedTraining& best, const std::string& batch) {
  const models::Parallel& p = best.scenario->parallel;
  return batch.empty() ? fmt::format("{} x {} x {} sequences", p.dp, p.microbatches, p.micro_batch) : batch;
}

// Returns the assumptions behind days and cost, with their sources.
ordered_json assumptions_json(const RunQuestion& q, const RunAnswer& a, const std::string& batch) {
  const PricedTraining& best = a.plans.front();
  ordered_json all = ordered_json::array();
  const auto add = [&](std::string what, std::string value, std::string source) {
    all.push_back({{"what", std::move(what)}, {"value", std::move(value)}, {"source", std::move(source)}});
  };
  for (const UsedPrice& p : q.prices.counts_gpu_hours() ? std::vector<UsedPrice>() : used_prices(q, a)) {
    if (p.hour.bought)
      add("a GPU-hour of " + p.profile + ", bought", money(p.hour.total(), q.prices.currency),
          parts_text(q, p.hour) + "; the price is said by you (--buy)");
    if (p.hour.rent > 0)
      add((p.hour.bought ? "rent of a GPU-hour of " : "a GPU-hour of ") + p.profile,
          money(p.hour.rent, q.prices.currency),
          p.source.empty() ? "said by you" : p.source + ", read " + p.read);
    const auto watts = models::RentalList::shipped().node_watts.find(p.profile);
    if (watts != models::RentalList::shipped().node_watts.end())
      add("power of a node of " + p.profile + ", a GPU", fmt::format("{:.0f} W at most", watts->second.value),
          watts->second.source);
  }
  const models::Ownership& own = q.ownership;
  add("a kWh",
      own.kwh > 0       ? money(own.kwh, q.prices.currency)
      : own.buy.given() ? "not counted"
                        : "in the rent",
      own.kwh > 0 ? "said by you (--kwh)" : "--kwh says its price");
  if (own.kwh > 0)
    add("power usage effectiveness", fmt::format("{:g}", own.pue_used()),
        own.pue > 0 ? "said by you (--pue)"
                    : "mean of data centers, Uptime Institute, Global Data Center Survey 2024");
  if (own.buy.given())
    add("years that a bought machine serves", fmt::format("{:g}", own.years_used()),
        own.years > 0 ? "said by you (--years)" : "as Amazon writes servers off (10-K of 2024)");
  add("tokens of a step", models::format_count(best.answer.tokens), batch_text(best, batch));
  const models::Faults& f = best.scenario->faults;
  if (f.gpu_mtbf_hours > 0) {
    const models::Faults usual = models::usual_failures();
    const auto said = [](bool ours, const char* source) { return ours ? source : "said by you (--faults)"; };
    add("failures", fmt::format("one in {:.0f} hours of a GPU", f.gpu_mtbf_hours),
        said(f.gpu_mtbf_hours == usual.gpu_mtbf_hours,
             "419 interruptions in 54 days on 16,384 GPUs (Llama 3, arXiv 2407.21783, 3.3.4)"));
    add("a checkpoint", fmt::format("{:g} s", f.checkpoint_s),
        said(f.checkpoint_s == usual.checkpoint_s, "an assumption; --faults says another"));
    add("a restart", fmt::format("{:g} s", f.restart_s),
        said(f.restart_s == usual.restart_s, "an assumption; --faults says another"));
    if (f.interval_s == 0)
      add("between checkpoints", fmt::format("{:.0f} minutes", best.answer.goodput.interval_s / 60),
          "the best interval (Daly, FGCS 22, 2006)");
  }
  if (q.deadline_days > 0 || q.budget > 0)
    add("error of the step", fmt::format("{:.0f} %", 100 * models::step_sigma(*best.scenario)),
        "how far published steps are from their forecast (docs/validation.md)");
  return all;
}

}  // namespace

namespace {

// Returns "Of those that meet it: cheapest 96 GPUs, ..." where these are different plans.
std::string choices_text(const RunQuestion& q, const RunAnswer& a) {
  const models::RunChoices best = models::choices_of(a);
  if (!best.cheapest || (best.cheapest == best.fewest_gpus && best.cheapest == best.shortest)) return "";
  // The answer says the first plan.
  std::vector<std::string> parts;
  for (const auto& [what, plan] : {std::pair{"cheapest", best.cheapest},
                                   {"fewest GPUs", best.fewest_gpus},
                                   {"done first", best.shortest}})
    if (plan != &a.plans.front())
      parts.push_back(fmt::format("{}: {} GPUs ({}), {} days, {}", what, plan->gpus,
                                  plan->scenario->cluster->name, number(plan->days.value),
                                  money(plan->cost.value, q.prices.currency)));
  return parts.empty() ? "" : paragraph("Of these " + join(parts, "; ") + ".");
}

}  // namespace

std::string training_run_text(const RunQuestion& q, const RunAnswer& a, const std::string& batch, int top) {
  const PricedTraining& best = a.plans.front();
  std::string text = inked(paragraph(answer_sentence(q, a)), Ink::kBold);
  text += command_text(plan_words(best), sentence_columns()) + "\n";
  text += plan_table(q, a, top).text();
  if (std::ranges::count_if(a.plans, [](const PricedTraining& p) { return !p.other; }) > 1)
    text += paragraph(
        "One plan a machine, best first; same letter: not told apart; *: nothing is faster and cheaper");
  text += choices_text(q, a);
  text += other_precision_text(q, a);
  text += upgrade_text(q, a);
  text += paragraph(fmt::format(
      "{}{}{} A step on {}: {} tokens ({}), {:.2f} s. {} plans were searched. {}", price_text(q, a),
      best.mwh > 0 ? fmt::format(" Power: at most {:.0f} MWh{}.", best.mwh,
                                 best.hour.power > 0 ? ", counted"
                                 : best.hour.bought  ? ", not counted (--kwh)"
                                                     : ", in the rent")
                   : "",
      failure_text(best), machine_text(*best.scenario), models::format_count(best.answer.tokens),
      batch_text(best, batch), best.answer.seconds(), a.candidates, gap_text(a)));
  if (const std::vector<std::string> parts = best.answer.unmeasured_parts(); !parts.empty())
    text += paragraph(
        fmt::format("Not measured on that machine: {} of the parts of its time; --format json names them.",
                    parts.size()));
  constexpr std::size_t kShown = 1;
  for (std::size_t i = 0; i < std::min(kShown, a.left_out.size()); ++i)
    text += paragraph(fmt::format("Left out: {}: {}", a.left_out[i].what, a.left_out[i].why));
  if (a.left_out.size() > kShown)
    text += fmt::format("Left out: {} more, in --format json\n", a.left_out.size() - kShown);
  return text;
}

std::string training_text(const RunQuestion& q, const PricedTraining& run) {
  return fmt::format("{} tokens: {}", models::format_count(q.tokens), in_words(run, q.prices.currency));
}

namespace {

// No value where it is 0.
Cell amount(double value) { return value > 0 ? Cell(value) : Cell(); }

// Returns the cost of a bought machine by its parts, beside its rent.
ordered_json purchase_json(const PricedTraining& p) {
  const models::HourCost hour = p.hour.each(static_cast<double>(p.gpus));
  ordered_json j{{"price", p.hour.purchase},
                 {"gpu_hour",
                  {{"total", hour.total()},
                   {"capital", hour.capital},
                   {"hosting", hour.hosting},
                   {"power", hour.power}}},
                 {"rent_cost", nullptr},
                 {"pays_from_share", nullptr}};
  if (p.hour.rent > 0) j["rent_cost"] = rent_cost(p);
  if (p.hour.pays_from > 0 && p.hour.pays_from <= 1) j["pays_from_share"] = p.hour.pays_from;
  return j;
}

}  // namespace

std::span<const PlanColumn> plan_columns() {
  static constexpr PlanColumn kColumns[] = {
      {"cluster", [](const PricedTraining& r) -> Cell { return r.scenario->cluster->name; }, true},
      {"gpus", [](const PricedTraining& r) -> Cell { return std::int64_t{r.gpus}; }},
      {"idle_gpus", [](const PricedTraining& r) -> Cell { return std::int64_t{r.idle_gpus}; }},
      {"tp", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.tp}; }},
      {"cp", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.cp}; }},
      {"pp", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.pp}; }},
      {"vpp", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.vpp}; }},
      {"ep", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.ep}; }},
      {"etp", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.etp}; }},
      {"dp", [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.dp}; }},
      {"microbatches",
       [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.microbatches}; }},
      {"micro_batch",
       [](const PricedTraining& r) -> Cell { return std::int64_t{r.scenario->parallel.micro_batch}; }},
      {"precision",
       [](const PricedTraining& r) -> Cell { return value_of(*r.scenario, "training.precision"); }, true},
      {"schedule", [](const PricedTraining& r) -> Cell { return value_of(*r.scenario, "training.schedule"); },
       true},
      {"recompute",
       [](const PricedTraining& r) -> Cell { return value_of(*r.scenario, "training.recompute"); }, true},
      {"overlap", [](const PricedTraining& r) -> Cell { return overlap_of(*r.scenario); }, true},
      {"launch", [](const PricedTraining& r) -> Cell { return value_of(*r.scenario, "training.launch"); },
       true},
      {"dispatcher", [](const PricedTraining& r) -> Cell { return r.scenario->dispatchers.front().text(); },
       true},
      {"step_time_us", [](const PricedTraining& r) -> Cell { return r.answer.time_us.value; }},
      {"days", [](const PricedTraining& r) -> Cell { return r.days.value; }},
      {"cost", [](const PricedTraining& r) -> Cell { return r.cost.value; }},
      {"bought", [](const PricedTraining& r) -> Cell { return r.hour.bought; }},
      {"purchase", [](const PricedTraining& r) -> Cell { return amount(r.hour.purchase); }},
      {"rent_cost",
       [](const PricedTraining& r) -> Cell { return r.hour.bought ? amount(rent_cost(r)) : Cell(); }},
      {"deadline_probability", [](const PricedTraining& r) -> Cell { return r.deadline_probability; }},
      {"fits_probability", [](const PricedTraining& r) -> Cell { return r.answer.memory.fits_probability; }},
  };
  return kColumns;
}

std::string training_run_csv(const RunAnswer& a) {
  std::vector<Table::Column> heads;
  for (const PlanColumn& column : plan_columns()) heads.push_back({column.name});
  heads.push_back({"tie_group"});
  heads.push_back({"frontier"});
  Table table(heads);
  for (const PricedTraining& r : a.plans) {
    std::vector<std::string> row;
    for (const PlanColumn& column : plan_columns()) row.push_back(cell_text(column.cell(r)));
    row.push_back(std::to_string(r.tie_group));
    row.push_back(r.on_frontier ? "true" : "false");
    table.row(std::move(row));
  }
  return table.csv();
}

void add_training_run(ordered_json& result, const RunQuestion& q, const RunAnswer& a,
                      const std::string& batch) {
  result["answer"] = answer_sentence(q, a);
  result["tokens"] = q.tokens;
  if (q.deadline_days > 0) result["deadline_days"] = q.deadline_days;
  if (q.budget > 0) result["budget"] = q.budget;
  result["by"] = q.by == RunQuestion::By::kTime ? "time" : "cost";
  result["currency"] = q.prices.currency;
  result["plans"] = ordered_json::array();
  result["frontier"] = ordered_json::array();
  for (const PricedTraining& r : a.plans) {
    const models::Scenario& s = *r.scenario;
    const ordered_json whole = models::to_json(s);
    ordered_json plan{{"cluster", s.cluster->name},
                      {"gpus", r.gpus},
                      {"idle_gpus", r.idle_gpus},
                      {"parallel", whole["parallel"]},
                      {"precision", s.training.precision},
                      {"schedule", value_of(s, "training.schedule")},
                      {"recompute", s.training.recompute.text()},
                      {"overlap", overlap_of(s)},
                      {"launch", value_of(s, "training.launch")},
                      {"dispatcher", s.dispatchers.front().text()},
                      {"step_time_us", estimate_json(r.answer.time_us)},
                      {"days", estimate_json(r.days)},
                      {"cost", estimate_json(r.cost)},
                      {"deadline_probability", r.deadline_probability},
                      {"budget_probability", r.budget_probability},
                      {"fits_probability", r.answer.memory.fits_probability},
                      {"tie_group", r.tie_group},
                      {"group", group_name(a, r)},
                      {"on_frontier", r.on_frontier},
                      {"meets", r.meets},
                      {"lower_precision", r.other},
                      {"goodput", r.answer.goodput.share},
                      {"failures_per_day", r.answer.goodput.failures_per_day},
                      {"mfu", r.answer.mfu},
                      {"unmeasured", r.answer.unmeasured_parts()},
                      {"command", plan_command(r)},
                      {"scenario", whole}};
    if (r.mwh > 0) plan["mwh_at_most"] = r.mwh;
    if (r.hour.bought) plan["purchase"] = purchase_json(r);
    if (r.on_frontier)
      result["frontier"].push_back(
          {{"plan", result["plans"].size()}, {"days", r.days.value}, {"cost", r.cost.value}});
    result["plans"].push_back(std::move(plan));
  }
  const models::RunChoices best = models::choices_of(a);
  const auto index = [&](const PricedTraining* p) {
    return p ? ordered_json(p - a.plans.data()) : ordered_json();
  };
  result["choices"] = {{"cheapest", index(best.cheapest)},
                       {"fewest_gpus", index(best.fewest_gpus)},
                       {"shortest", index(best.shortest)}};
  // From the fastest to the cheapest.
  std::stable_sort(result["frontier"].begin(), result["frontier"].end(),
                   [](const ordered_json& x, const ordered_json& y) { return x["days"] < y["days"]; });
  result["upgrades"] = ordered_json::array();
  for (const models::Upgrade& u : a.upgrades) {
    ordered_json j{{"change", u.change},
                   {"cluster", u.cluster},
                   {"days", estimate_json(u.days)},
                   {"saved_days", estimate_json(u.saved_days)},
                   {"worth", u.worth}};
    if (u.most_gpu_hour > 0) j["most_gpu_hour"] = u.most_gpu_hour;
    if (u.listed_gpu_hour > 0) j["listed_gpu_hour"] = u.listed_gpu_hour;
    result["upgrades"].push_back(std::move(j));
  }
  result["searched"] = {{"candidates", a.candidates},
                        {"tried", a.tried},
                        {"searches", a.searches},
                        {"exhaustive", a.exhaustive},
                        {"gap", a.gap},
                        {"method", a.method},
                        {"space", a.space}};
  result["searched"]["sentence"] = searched_text(a);
  result["assumptions"] = assumptions_json(q, a, batch);
  result["left_out"] = ordered_json::array();
  for (const RunAnswer::LeftOut& one : a.left_out)
    result["left_out"].push_back(
        {{"machine", one.what}, {"whole_machine", one.machine}, {"because", one.why}});
}

std::vector<std::string> training_run_warnings(const RunAnswer& a) {
  std::vector<std::string> warnings;
  const models::Answer& best = a.plans.front().answer;
  for (const std::string& part : best.unmeasured_parts())
    warnings.push_back(fmt::format("of the best plan nobody measured on its machine: {}", part));
  warnings.insert(warnings.end(), best.warnings.begin(), best.warnings.end());
  return warnings;
}

}  // namespace moesim::tools
