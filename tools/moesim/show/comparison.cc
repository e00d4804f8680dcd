#include "tools/moesim/show/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "models/answers/plan_space.h"
#include "models/answers/sentences.h"
#include "models/hardware/cluster.h"
#include "models/question/assumed.h"
#include "models/step/training_flops.h"
#include "models/workload/global_batch.h"
#include "models/workload/model_json.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::Answer;
using models::Comparison;
using models::Scenario;
using sim::Category;

// Returns the unit of all times of a comparison that people see.
TimeUnit unit_of(const Comparison& c) {
  double largest = 0;
  for (const Answer& a : c.answers)
    if (a.ok()) largest = std::max(largest, a.time_us.value);
  return TimeUnit::of(largest);
}

// Marks the recommended choice, and those that are as good or, where it is open, as likely.
std::string marked(const Comparison& c, std::size_t i) {
  using Verdict = models::Decision::Verdict;
  const models::Decision& d = c.decision;
  const auto holds = [&](const std::vector<int>& some) {
    return std::ranges::find(some, static_cast<int>(i)) != some.end();
  };
  const bool named = d.answered() || d.verdict == Verdict::kOnlyOne;
  const char* mark = named && static_cast<int>(i) == d.winner                   ? " *"
                     : holds(d.among) || (d.alike.size() > 1 && holds(d.alike)) ? " ~"
                                                                                : "";
  // Beside the dispatchers that it could run, the job's own.
  const bool today = c.answers.size() > 1 && models::own_dispatcher(c) == c.answers[i].dispatcher;
  return c.answers[i].dispatcher + (today ? " (today)" : "") + mark;
}

bool is_best(const Comparison& c, std::size_t i) { return marked(c, i).ends_with(" *"); }

// The answers of a first screen: all that were named; of "all" the recommended one and the fastest that can
// be chosen.
std::vector<std::size_t> shown_answers(const Comparison& c, bool all) {
  constexpr std::size_t kMost = 4;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < c.answers.size(); ++i)
    if (c.answers[i].ok()) shown.push_back(i);
  if (all || !c.scenario->all_dispatchers || shown.size() <= kMost) return shown;
  std::ranges::stable_sort(shown, {}, [&](std::size_t i) {
    return std::tuple(static_cast<int>(i) != c.decision.winner, !c.answers[i].ranked(),
                      c.answers[i].time_us.value);
  });
  shown.resize(kMost);
  return shown;
}

// "yes", "no", or how likely where neither is sure.
std::string fits_text(const Answer& a) {
  const double p = a.memory.fits_probability;
  const char* likely = a.memory.fits ? "yes" : "no";
  return p > 0.005 && p < 0.995 ? fmt::format("{} ({:.0f} %)", likely, 100 * p) : likely;
}

// Returns the columns that decide, few enough for a terminal. The others are in the CSV, parts of the time in --detail
// times.
Table screen_table(const Comparison& c, const std::vector<std::size_t>& answers) {
  using Index = std::size_t;
  const TimeUnit unit = unit_of(c);
  const bool step = c.scenario->is_step();
  const std::string time = unit.head(!c.scenario->train ? "forward" : step ? "step" : "layer");
  const auto of = [&](Index i) -> const Answer& { return c.answers[i]; };
  const auto any = [&](const auto& has) {
    return std::ranges::any_of(answers, [&](Index i) { return has(c.answers[i]); });
  };
  const auto range = [&](Index i) {
    return of(i).draws_us.empty() ? std::nullopt : interval(of(i).interval(), unit);
  };
  Columns<Index> all{{"", [&](Index i) { return marked(c, i); }, "", "dispatcher"},
                     {"", [&](Index i) { return of(i).time_us.value; }, "", time_head(time, unit)},
                     {"", range, "", "90 % interval"}};
  if (!c.decision.fastest.empty() && c.decision.runner_up >= 0)
    all.add(
        {{"", [&](Index i) { return where(of(i).ranked(), c.decision.fastest[i]); }, "", {"P(fastest)", 2}}});
  if (step)
    all.add(figures().some({"tokens_per_s_per_gpu", "mfu"}), of);
  else
    all.add({{"", [&](Index i) { return sent_bytes(of(i)).mean; }, "", {"sent/rank [MB]", 3, 1e-6}}});
  if (!step && any([](const Answer& a) { return a.overload.printed().max > 1.005; }))
    all.add({{"", [&](Index i) { return of(i).overload.printed().max; }, "", {"overload", 2}}});
  if (any([](const Answer& a) { return a.dropped_rows > 0; }))
    all.add({{"", [&](Index i) { return of(i).dropped_share; }, "", share_head("dropped", 1)}});
  all.add(memory_for_people(), of);
  return people_table<Index>(all, answers, {"P(fastest)", "tokens/s/GPU", "sent/rank [MB]"},
                             [&](Index i) { return is_best(c, i); });
}

// Returns the parts of the time, a column for each nonzero one.
Table times_table(const Comparison& c) {
  const TimeUnit unit = unit_of(c);
  Columns<Answer> all{{"", &Answer::dispatcher, "", unit.head("dispatcher").c_str()},
                      {"", [](const Answer& a) { return a.time_us.value; }, "", time_head("all", unit)}};
  const std::vector<BarPart> parts = breakdown_parts({});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto us = [i](const Answer& a) { return breakdown_parts(a.breakdown_us)[i].value; };
    if (std::ranges::any_of(c.answers, [&](const Answer& a) { return a.ok() && us(a) > 0; }))
      all.add({{"", us, "", time_head(parts[i].name, unit)}});
  }
  return people_table(all, forecasts(c));
}

// Where the time of each dispatcher goes, beside each other; and who has how much to compute.
std::string time_bars(const Comparison& c, const std::vector<std::size_t>& answers) {
  const TimeUnit unit = unit_of(c);
  std::vector<BarRow> rows;
  for (const std::size_t i : answers) {
    const Answer& a = c.answers[i];
    rows.push_back(
        {marked(c, i), breakdown_parts(a.breakdown_us), unit.number(a.time_us.value), is_best(c, i)});
  }
  std::string text = bar_chart(rows);
  const Answer* w = c.winner();
  if (!w) return text;
  const std::vector<std::int64_t>& computed = w->program().computed_rows;
  if (computed.size() > 1 && std::ranges::adjacent_find(computed, std::not_equal_to{}) != computed.end()) {
    text += fmt::format("rows of ranks 0 to {}{}: {}\n", computed.size() - 1,
                        c.scenario->is_step() ? ", first layer and microbatch" : "",
                        sparkline(std::vector<double>(computed.begin(), computed.end())));
  }
  return text;
}

// "PP 2 x VPP 8, EP 8, DP 16": the sizes that are not one.
std::string sizes_text(const models::Parallel& p) {
  std::vector<std::string> sizes;
  for (const auto& [path, name, size] : models::kParallelSizes) {
    if (p.*size == 1 || size == &models::Parallel::micro_batch) continue;
    if (size == &models::Parallel::vpp && !sizes.empty())
      sizes.back() += fmt::format(" x VPP {}", p.vpp);
    else
      sizes.push_back(fmt::format("{} {}", name, p.*size));
  }
  return sizes.empty() ? "all sizes 1" : join(sizes, ", ");
}

std::string balance_text(const Answer& a) {
  const Answer::Balance& b = *a.balance;
  const std::string worth =
      b.saved_us > 0
          ? fmt::format("worth it from {:.0f} tokens a rank and microbatch on", b.break_even_tokens)
          : "not worth it with any number of tokens";
  return fmt::format(
      "balance, {}: busiest rank {:.2f}x instead of {:.2f}x; moving weights or gradients takes {} of a layer "
      "and saves {}: {}\n",
      a.dispatcher, b.busiest, b.busiest_before, format_us(b.paid_us), format_us(b.saved_us), worth);
}

// Returns the sentences below the tables.
std::string remarks(const Comparison& c, const std::vector<std::size_t>& answers, bool explain) {
  std::string text;
  for (std::size_t i = 0; i < c.answers.size(); ++i) {
    const Answer& a = c.answers[i];
    if (!a.error.empty()) text += fmt::format("not {}: {}\n", a.dispatcher, a.error);
    if (std::ranges::find(answers, i) == answers.end()) continue;
    if (a.network.groups > 0)
      text += fmt::format(
          "network, {}: {} groups at once take {:.2f}x as long as one without contention; busiest link {} -> "
          "{}, "
          "{:.0f} %\n",
          a.dispatcher, a.network.groups, a.time_us.value / a.network.calibrated_us, a.network.busiest.from,
          a.network.busiest.to, 100 * a.network.busiest.utilisation);
    if (a.balance) text += balance_text(a);
    if (a.bar != models::Bar::kNone)
      text += fmt::format("cannot be chosen: {}: {}\n", a.dispatcher, models::barred_text(a));
  }
  // Why one cannot run that was not asked for stands in the JSON.
  if (c.scenario->all_dispatchers && explain)
    for (const auto& [dispatcher, rule] : c.excluded) text += fmt::format("not {}: {}\n", dispatcher, rule);
  const Answer* w = c.winner();
  if (!w) return text;
  if (c.scenario->is_step() && explain)
    text += fmt::format(
        "exposed communication {} and bubble {} of the step; MFU: {}\n", format_us(w->exposed_comm_us),
        format_us(w->breakdown_us[static_cast<std::size_t>(Category::bubble)]), models::kFlopConvention);
  if (c.scenario->faults.slow())
    text += fmt::format("faults: {} instead of {} on a healthy machine ({})\n", format_us(w->time_us.value),
                        format_us(w->healthy_us), percent(w->time_us.value / w->healthy_us - 1, 1, true));
  if (w->goodput.failures_per_day > 0)
    text += fmt::format(
        "failures: {:.2f} a day on {} GPUs; with a checkpoint every {:.0f} s, {:.1f} % of the time is work "
        "that "
        "counts: {:.0f} tokens/s/GPU\n",
        w->goodput.failures_per_day, w->gpus, w->goodput.interval_s, w->goodput.share * 100,
        w->goodput.share * w->tokens_per_s_per_gpu());
  constexpr double kTold = 0.1;
  if (!explain && w->outside_domain > kTold)
    text += fmt::format("{:.0f} % of the time of {} lies outside of what was measured on {}: --explain\n",
                        100 * w->outside_domain, w->dispatcher, c.scenario->cluster->profile.name());
  const models::TrainingSettings& t = c.scenario->training;
  if (t.precision != "bf16" && t.launch == models::LaunchMode::kEager &&
      t.framework != models::Framework::kNone && !c.scenario->is_step())
    text += fmt::format(
        "{} adds launches of casts, which are a forecast of the host: nobody published them of one layer; --launch graphs "
        "takes them away\n",
        t.precision);
  if (w->cost > 0) text += fmt::format("cost: {}\n", cost_text(*w, *c.scenario));
  if (const auto energy = models::energy_of(*c.scenario, *w); energy && (w->cost > 0 || explain))
    text += fmt::format("energy: {}\n", energy_text(*energy));
  if (!w->memory.fits)
    text += fmt::format(
        "does not fit: stage {} misses {}{}\n", w->memory.stage, format_bytes(w->memory.missing_bytes),
        // Names one change: the cheapest, which the first line contains.
        c.fitting && !c.scenario->is_step()
            ? (c.fitting->options.empty() ? "; no pipeline on these GPUs fits"
                                          : "; " + c.fitting->options + " is the smallest pipeline that fits")
        : c.fitting || !c.scenario->is_step() ? ""
        : w->memory.recompute_that_fits.empty()
            ? "; no recomputation makes it fit"
            : "; --recompute " + w->memory.recompute_that_fits + " would make it fit");
  return text;
}

}  // namespace

Columns<Answer> memory_for_people() {
  return {{"", [](const Answer& a) { return a.memory.max_bytes; }, "", {"memory [GB]", 2, 1e-9}},
          {"", fits_text, "", "fits"}};
}

SentBytes sent_bytes(const Answer& a) {
  const auto [low, high] = std::ranges::minmax(a.tx_bytes);
  return {
      low, high,
      std::accumulate(a.tx_bytes.begin(), a.tx_bytes.end(), 0.0) / static_cast<double>(a.tx_bytes.size())};
}

std::string energy_text(const models::Energy& e) {
  const models::Estimate& joules = e.joules_per_token;
  return fmt::format(
      "{:.3g} kWh per step, {:.3g} J ({:.3g} to {:.3g}) per token; nodes draw {:.3g} kW each, {:.4g} kW "
      "together at their peak",
      e.kwh_per_step, joules.value, joules.low, joules.high, e.node_watts.value * 1e-3, e.peak_watts * 1e-3);
}

std::string cost_text(const Answer& a, const Scenario& s) {
  return fmt::format("{:.4g} {} per {}, {:.4g} per million tokens on {} GPUs", a.cost,
                     models::currency_of(s.prices, s.ownership),
                     s.is_step() ? "step" : "layer of a microbatch", a.cost_per_million_tokens(), a.gpus);
}

std::string question_text(const Comparison& c, bool explain) {
  const Scenario& s = *c.scenario;
  const models::Parallel& p = s.parallel;
  const std::string pass = s.train ? "forward and backward" : "forward pass alone (no serving)";
  std::string text;
  if (s.is_step()) {
    const Answer& any =
        *std::find_if(c.answers.begin(), c.answers.end(), [](const Answer& a) { return a.ok(); });
    text = fmt::format(
        "{} on {}: one {} of {} tokens on {} GPUs; {}; {} microbatches of {} x {}, {}, {}, "
        "recompute {}\n",
        s.model.name, machine_text(s), s.train ? "training step" : "forward pass (no serving)",
        models::format_count(any.tokens), any.gpus, sizes_text(p), p.microbatches, p.micro_batch, p.seq,
        s.training.precision, name_of(s.training.pipeline), s.training.recompute.text());
  } else {
    text =
        fmt::format("{} on {}: one MoE layer, {}; EP {} x ETP {}, TP {}, {} tokens per rank, top-{}\n",
                    s.model.name, machine_text(s), pass, p.ep, p.etp, p.tp, c.routing.max_tokens(), s.topk);
  }
  // A name of `moesim list models` is known; a file was perhaps understood in another way than it was meant.
  if (explain || !models::to_json(s.model).is_string()) text += model_text(models::asked_model(s)) + "\n";
  if (s.model.experts == 0) return text;
  if (explain || s.routing.kind != models::RoutingSpec::Kind::kBalanced)
    text +=
        fmt::format("routing {}: busiest expert {:.2f}x, busiest rank {:.2f}x the mean, Gini {:.3f}{}\n",
                    s.routing.text, c.routing.expert_skew(), c.routing.rank_imbalance(static_cast<int>(p.ep)),
                    c.routing.gini(), s.is_step() ? " in the first layer" : "");
  // With `--dispatcher all` they are also about dispatchers that are not shown.
  if (explain || !s.all_dispatchers)
    for (const std::string& one : c.defaults) text += one + "\n";
  return text;
}

std::string assumed_text(const Comparison& c, bool explain) {
  std::vector<std::string> assumed;
  for (const models::Assumed& one : models::assumed_of(c)) assumed.push_back(one.text());
  // Of a first screen, which also holds what an uneven routing costs, or what settles an open choice.
  const bool even = c.scenario->routing.kind == models::RoutingSpec::Kind::kBalanced;
  const std::size_t most = !c.decision.settle.empty() ? 1 : even ? 4 : 2;
  if (!explain && assumed.size() > most) assumed.resize(most);
  return assumed.empty() ? "" : fmt::format("assumed: {}\n", join(assumed, ", "));
}

void print_comparison(const Comparison& c, Detail detail, bool explain, std::string_view chosen) {
  print_answer(models::sentence(c));
  if (c.winner()) print_text(models::because(c) + "\n");
  print("\n");
  const std::vector<std::size_t> answers = shown_answers(c, explain);
  print(screen_table(c, answers).text());
  const auto forecast = static_cast<std::size_t>(std::ranges::count_if(c.answers, &Answer::ok));
  if (const std::size_t more = forecast - answers.size() + c.excluded.size();
      c.scenario->all_dispatchers && !explain && more > 0)
    print(inked(fmt::format("and {} more: --explain", more), Ink::kSoft) + "\n");
  print("\n" + time_bars(c, answers) + "\n");
  print_text(question_text(c, explain), 2);
  print_text(chosen, 2);
  if (detail == Detail::kTimes) print("\n" + times_table(c).text());
  if (const auto table = table_of_detail(c, detail)) print("\n" + table->text());
  if (detail == Detail::kMemory) print("\n" + memory_tree(c));
  if (!c.step_collectives.empty() && (explain || c.scenario->sharding_asked()))
    print("\n" + table_of(c.step_collectives).text());
  print_text(remarks(c, answers, explain), 2);
  // A first screen has room for one remedy and fewer assumptions beside it, and for neither beside an open choice.
  const auto cost = explain || c.decision.settle.empty() ? models::imbalance_of(c) : std::nullopt;
  if (cost) print_text(cost->text(explain ? cost->remedies.size() : 1) + "\n", 2);
  print_text(assumed_text(c, explain), 2);
  if (!c.decision.settle.empty()) print_text(fmt::format("to settle it: {}\n", c.decision.settle), 2);
}

std::vector<std::string> to_act_on(const std::vector<std::string>& warnings, const models::Cluster& cluster,
                                   std::span<const Answer> answers) {
  std::set<std::string> notes;
  for (const Answer& a : answers) {
    // Where routing is forced, nothing is counted: what its program says, an option changes.
    if (!a.ok() || a.program().forces_routing) continue;
    for (const std::string& one : a.program().warnings)
      notes.insert(fmt::format("{}: {}", a.dispatcher, one));
  }
  const std::string profile = cluster.profile.name() + ": ";
  std::vector<std::string> kept;
  for (const std::string& one : warnings)
    if (!notes.contains(one) && !one.starts_with(profile)) kept.push_back(one);
  return kept;
}

}  // namespace moesim::tools
