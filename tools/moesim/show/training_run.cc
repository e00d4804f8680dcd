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
#include "models/answers/plan_space.h"
#include "models/hardware/rental_list.h"
#include "models/step/step_forecast.h"
#include "models/workload/global_batch.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
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

std::optional<double> positive(double value) { return where(value > 0, value); }

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
  if (q.power_watts > 0 && p.energy)
    parts.push_back(
        fmt::format("{:.4g} kW at the peak of {:.4g}", p.energy->peak_watts * 1e-3, q.power_watts * 1e-3));
  return parts.empty() ? "" : "; " + join(parts, ", ");
}

// Names the limit (deadline, budget, both) that no plan meets: "no plan is done in 8 days with probability 0.9".
std::string missed(const RunQuestion& q, const RunAnswer& a) {
  constexpr double kSure = models::Decision::kSure;
  if (q.power_watts > 0 && std::ranges::none_of(a.plans, [&](const PricedTraining& p) {
        return p.energy && p.energy->peak_watts <= q.power_watts;
      }))
    return fmt::format("no plan stays below {:.4g} kW", q.power_watts * 1e-3);
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

// Settings of a plan that CSV has, too.
auto setting(const char* path) {
  return [path](const PricedTraining& p) { return models::setting_text(*p.scenario, path); };
}
std::string cluster_of(const PricedTraining& p) { return p.scenario->cluster->name; }
std::string dispatcher_of(const PricedTraining& p) { return p.scenario->dispatchers.front().text(); }
std::string plan_overlap(const PricedTraining& p) { return overlap_of(*p.scenario); }
double fits_probability(const PricedTraining& p) { return p.answer.memory.fits_probability; }

// One a machine, best first, those of the asked precision.
Table plan_table(const RunQuestion& q, const RunAnswer& a, int top) {
  using P = PricedTraining;
  const bool promised = q.deadline_days > 0 || q.budget > 0;
  const bool idle = std::ranges::any_of(a.plans, [](const P& p) { return p.idle_gpus > 0; });
  Columns<P> columns{
      {"", [&](const P& p) { return group_name(a, p) + (p.on_frontier ? "*" : ""); }, "", "group"},
      {"", cluster_of, "", "cluster"},
      {"", &P::gpus, "", "GPUs"},
      {"", &P::idle_gpus, "", idle ? "idle" : Head()},
      {"", [](const P& p) { return p.days.value; }, "", {"days", number}},
      {"",
       [](const P& p) { return p.cost.value; },
       "",
       {"cost", [&](double cost) { return money(cost, q.prices.currency); }}},
      {"", [](const P& p) { return std::min(p.deadline_probability, p.budget_probability); }, "",
       promised ? Head("P", probability_text) : Head()}};
  for (const auto& [path, name, size] : models::kParallelSizes)
    if (const std::string_view one = name; one == "TP" || one == "PP" || one == "VPP" || one == "EP")
      columns.add({{"", [size = size](const P& p) { return p.scenario->parallel.*size; }, "", name}});
  // Without options, which stand in the command above.
  columns.add({{"", [](const P& p) { return p.scenario->dispatchers.front().name; }, "", "dispatcher"}})
      .add(figures().some({"mfu"}), &P::answer);
  std::vector<std::reference_wrapper<const P>> shown;
  for (const P& p : a.plans)
    if (!p.other && std::ssize(shown) < top) shown.emplace_back(p);
  return people_table(columns, shown, {"TP", "PP", "VPP", "EP"});
}

// The best plan with products in a lower precision that is sooner or cheaper, in a sentence; the page, JSON
// and CSV have all.
std::string other_precision_text(const RunQuestion& q, const RunAnswer& a) {
  const PricedTraining& usual = a.plans.front();
  const auto best = std::ranges::find_if(a.plans, [&](const PricedTraining& p) {
    return p.other && (p.days.value < usual.days.value || p.cost.value < usual.cost.value);
  });
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
  using U = models::Upgrade;
  const auto dollars = [&](double value) { return money(value, currency); };
  // Without the sign of what rounds to zero.
  const auto days = [](double value) { return fmt::format("{:.1f}", std::round(10 * value) / 10 + 0.0); };
  const Columns<U> columns{
      {"", &U::change, "", "upgrade of the best plan"},
      {"", [](const U& u) { return u.days.value; }, "", {"days", number}},
      {"", [](const U& u) { return u.saved_days.value; }, "", {"saved", days}},
      {"", [=](const U& u) { return days(u.saved_days.low) + " to " + days(u.saved_days.high); }, "",
       "90 % interval"},
      {"", [](const U& u) { return positive(u.worth); }, "", {"worth", dollars}},
      {"", [](const U& u) { return positive(u.most_gpu_hour); }, "", {"at most", dollars}},
      {"", [](const U& u) { return positive(u.listed_gpu_hour); }, "", {"listed", dollars}}};
  return "\n" + people_table(columns, a.upgrades, {"at most", "listed"}).text() +
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

// What days and cost rest on.
struct Assumption {
  std::string what, value, source;
};

std::vector<Assumption> assumptions(const RunQuestion& q, const RunAnswer& a, const std::string& batch) {
  const PricedTraining& best = a.plans.front();
  std::vector<Assumption> all;
  const auto add = [&](std::string what, std::string value, std::string source) {
    all.push_back({std::move(what), std::move(value), std::move(source)});
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
    add("error of the step",
        fmt::format("{:.0f} %", 100 * std::hypot(models::step_sigma(*best.scenario), q.spread.sigma)),
        "how far published steps are from their forecast, and tuned runs from the best plan for them "
        "(docs/validation.md)");
  return all;
}

// Returns "The best published run of qwen3-235b-a22b on h100-sxm in bf16 makes 2132 tokens/s a GPU (...)".
std::string published_text(const RunQuestion& q, const PricedTraining& best) {
  const models::PublishedRun* run = models::best_published(*best.scenario);
  if (!run || q.spread.sigma == 0) return "";
  const double rate = run->tokens_per_s_per_gpu(), own = best.answer.tokens_per_s_per_gpu();
  return paragraph(fmt::format(
      "The best published run of {} on {} in {}, on {} GPUs, makes {:.0f} tokens/s a GPU ({}); this plan {:.0f}, "
      "{:.0f} % {}. The interval holds how far tuned runs were from the best plan for them.",
      run->model, run->gpu, run->precision, run->gpus, rate, run->source, own, 100 * std::abs(own / rate - 1),
      own < rate ? "less" : "more"));
}

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
      best.energy ? fmt::format(" Energy: {:.4g} MWh{}, {:.4g} kW at the peak.", best.mwh(),
                                best.hour.power > 0           ? ", paid at the peak"
                                : best.hour.bought            ? ", not counted (--kwh)"
                                : q.prices.counts_gpu_hours() ? ""
                                                              : ", in the rent",
                                best.energy->peak_watts * 1e-3)
                  : "",
      failure_text(best), machine_text(*best.scenario), models::format_count(best.answer.tokens),
      batch_text(best, batch), best.answer.seconds(), a.candidates, gap_text(a)));
  text += published_text(q, best);
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

// Of a bought machine, beside its rent.
Columns<PricedTraining> purchase_columns() {
  using P = PricedTraining;
  using H = models::HourCost;
  const auto hour = [](const P& p) { return p.hour.each(static_cast<double>(p.gpus)); };
  return {
      {"price", [](const P& p) { return p.hour.purchase; }, "of all its GPUs"},
      {"gpu_hour",
       Columns<P>().add(Columns<H>{{"total", &H::total},
                                   {"capital", &H::capital},
                                   {"hosting", &H::hosting},
                                   {"power", &H::power}},
                        hour),
       "an hour of work of a GPU, by its parts"},
      {"rent_cost", [](const P& p) { return where(p.hour.rent > 0, rent_cost(p)); },
       "of the training on rented machines; null: no rent is known"},
      {"pays_from_share",
       [](const P& p) { return where(p.hour.pays_from > 0 && p.hour.pays_from <= 1, p.hour.pays_from); },
       "share of its years that it has to work to cost less than its rent; null: it never does, or no rent "
       "is known"}};
}

Columns<models::PublishedRun> columns_of(Of<models::PublishedRun>) {
  using R = models::PublishedRun;
  return {{"gpus", &R::gpus},
          {"tokens_per_s_per_gpu", [](const R& r) { return r.tokens_per_s_per_gpu(); }},
          {"source", &R::source}};
}

}  // namespace

Columns<PricedTraining> plan_figures(const RunAnswer* a) {
  using P = PricedTraining;
  const auto answer = [](auto of) { return [of](const P& p) { return std::invoke(of, p.answer); }; };
  const auto goodput = [](auto of) { return [of](const P& p) { return p.answer.goodput.*of; }; };
  const auto energy = [](const P& p) -> const auto& { return *p.energy; };
  const auto published = [](const P& p) -> const auto& { return *models::best_published(*p.scenario); };
  using A = models::Answer;
  return {
      {"cluster", cluster_of, "its name, with its nodes"},
      {"gpus", &P::gpus, "of its nodes, all paid"},
      {"idle_gpus", &P::idle_gpus, "of them without work"},
      {"parallel", [](const P& p) { return models::to_json(*p.scenario)["parallel"]; },
       as_in("scenario.schema.json#/properties/parallel")},
      {"precision", setting("training.precision")},
      {"schedule", setting("training.schedule")},
      {"recompute", setting("training.recompute")},
      {"overlap", plan_overlap},
      {"launch", setting("training.launch")},
      {"dispatcher", dispatcher_of},
      {"step_time_us", answer(&A::time_us)},
      {"days", &P::days, "of the whole training, lost work and restarts included"},
      {"cost", &P::cost, "in \"currency\""},
      {"deadline_probability", &P::deadline_probability, "1 without a deadline"},
      {"budget_probability", &P::budget_probability, "1 without a budget"},
      {"fits_probability", fits_probability},
      {"tie_group", &P::tie_group, "draws do not tell plans of one group apart surely"},
      {"group", [a](const P& p) { return group_name(*a, p); }, "as a letter, from A in one precision"},
      {"on_frontier", &P::on_frontier, "no plan is both faster and cheaper"},
      {"meets", &P::meets, "deadline and budget, each with a probability of 0.9"},
      {"lower_precision", &P::other, "than was asked for: it changes the numerics, and stands behind others"},
      {"goodput", goodput(&models::Goodput::share), "share of the time that is work"},
      {"failures_per_day", goodput(&models::Goodput::failures_per_day)},
      {"mfu", answer(&A::mfu)},
      {"unmeasured", answer(&A::unmeasured_parts)},
      {"command", plan_command, "that asks about its step"},
      {"scenario", [](const P& p) { return models::to_json(*p.scenario); }, as_in("scenario.schema.json")},
      {"energy?", Columns<P>().add(columns_of(Of<models::Energy>{}), energy).add({{"training_mwh", &P::mwh}}),
       "of all nodes, without network and cooling; absent where the GPU's power limit is not known",
       [](const P& p) { return p.energy.has_value(); }},
      {"published?", Columns<P>().add(columns_of(Of<models::PublishedRun>{}), published),
       "the best published run of its model on its GPU in its precision; absent where none is known",
       [](const P& p) { return models::best_published(*p.scenario) != nullptr; }},
      {"purchase?", purchase_columns(), "of a bought machine; its cost is what the training uses of it",
       [](const P& p) { return p.hour.bought; }}};
}

namespace {

// The plans that nothing beats in both, from the fastest to the cheapest: their indices.
std::vector<std::int64_t> frontier(const RunAnswer& a) {
  std::vector<std::int64_t> all;
  for (const PricedTraining& p : a.plans)
    if (p.on_frontier) all.push_back(&p - a.plans.data());
  std::ranges::stable_sort(all, {},
                           [&](std::int64_t i) { return a.plans[static_cast<std::size_t>(i)].days.value; });
  return all;
}

Columns<RunAnswer> choice_columns() {
  const auto index = [](const PricedTraining* models::RunChoices::*chosen) {
    return [chosen](const RunAnswer& a) {
      const PricedTraining* plan = models::choices_of(a).*chosen;
      return plan ? std::optional<std::int64_t>(plan - a.plans.data()) : std::nullopt;
    };
  };
  using C = models::RunChoices;
  return {{"cheapest", index(&C::cheapest)},
          {"fewest_gpus", index(&C::fewest_gpus)},
          {"shortest", index(&C::shortest)}};
}

Columns<models::Upgrade> upgrade_figures() {
  using U = models::Upgrade;
  return {{"change", &U::change},
          {"cluster", &U::cluster},
          {"days", &U::days},
          {"saved_days", &U::saved_days},
          {"worth", &U::worth, "the days saved at the present rent"},
          {"most_gpu_hour?", [](const U& u) { return positive(u.most_gpu_hour); },
           "the rent at which the training costs what it did; absent where nothing is saved"},
          {"listed_gpu_hour?", [](const U& u) { return positive(u.listed_gpu_hour); },
           "its rent, where it is known"}};
}

// `q`, `a`: looked at where there is an answer.
Columns<RunAnswer> result_figures(const RunQuestion* q, const RunAnswer* a, const std::string& batch) {
  using A = RunAnswer;
  using L = A::LeftOut;
  const auto at = [a](std::int64_t i) -> const auto& { return a->plans[static_cast<std::size_t>(i)]; };
  const auto itself = [](std::int64_t i) { return i; };
  const Columns<std::int64_t> point{{"plan", itself, "index in \"plans\""},
                                    {"days", [=](std::int64_t i) { return at(i).days.value; }},
                                    {"cost", [=](std::int64_t i) { return at(i).cost.value; }}};
  const Columns<L> left_out{{"machine", &L::what},
                            {"whole_machine", &L::machine, "false: a dispatcher on it"},
                            {"because", &L::why}};
  const Columns<Assumption> assumption{
      {"what", &Assumption::what}, {"value", &Assumption::value}, {"source", &Assumption::source}};
  return Columns<A>{{"answer", [q](const A& a) { return answer_sentence(*q, a); },
                     "in a sentence, with what may be as good, does not surely fit or was not measured"},
                    {"tokens", [q](const A&) { return q->tokens; }},
                    {"deadline_days?", [q](const A&) { return positive(q->deadline_days); }},
                    {"budget?", [q](const A&) { return positive(q->budget); }, "in \"currency\""},
                    {"by", [q](const A&) { return q->by == RunQuestion::By::kTime ? "time" : "cost"; },
                     one_of({"cost", "time"}, "what ranks the plans")},
                    {"currency", [q](const A&) { return q->prices.currency; }}}
      .list("plans", plan_figures(a), &A::plans,
            "one of each machine and size, best first; those of a lower precision last")
      .list("frontier", point, frontier, "plans that nothing beats in both, from the fastest to the cheapest")
      .add({{"choices", choice_columns(), "indices of the plans that meet what was asked for"}})
      .list("upgrades", upgrade_figures(), &A::upgrades, "of the best plan's machine")
      .add({{"searched",
             {{"candidates", &A::candidates},
              {"tried", &A::tried},
              {"searches", &A::searches},
              {"exhaustive", &A::exhaustive},
              {"gap", &A::gap, "share of a plan's time by which another may be faster at most"},
              {"method", &A::method},
              {"space", &A::space},
              {"sentence", searched_text, "what was tried and what was not"}}}})
      .list(
          "assumptions", assumption, [=](const A& a) { return assumptions(*q, a, batch); },
          "what days and money rest on")
      .list("left_out", left_out, &A::left_out);
}

ordered_json figures() { return result_figures(nullptr, nullptr, "").schema(); }
const ResultSchema kSchema("plan", "plan", with_model<figures>);

}  // namespace

void add_training_run(ordered_json& result, const RunQuestion& q, const RunAnswer& a,
                      const std::string& batch) {
  result.update(result_figures(&q, &a, batch).json(a));
}

std::string training_run_csv(const RunAnswer& a) {
  const Columns<PricedTraining> row = plan_figures(&a).some(
      {"cluster", "gpus", "idle_gpus", "parallel", "precision", "schedule", "recompute", "overlap", "launch",
       "dispatcher", "step_time_us", "days", "cost", "deadline_probability", "budget_probability",
       "fits_probability", "tie_group", "on_frontier", "purchase"});
  std::vector<ordered_json> rows(a.plans.size());
  std::ranges::transform(a.plans, rows.begin(), [&](const PricedTraining& plan) { return row.json(plan); });
  return csv_of(rows);
}

std::vector<std::string> training_run_warnings(const RunAnswer& a) {
  const models::Answer& best = a.plans.front().answer;
  std::vector<std::string> warnings = best.unmeasured_parts();
  for (std::string& part : warnings)
    part = fmt::format("of the best plan nobody measured on its machine: {}", part);
  warnings.insert(warnings.end(), best.warnings.begin(), best.warnings.end());
  return warnings;
}

}  // namespace moesim::tools
