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
#include "models/answers/sentences.h"
#include "models/hardware/cluster.h"
#include "models/question/assumed.h"
#include "models/step/training_flops.h"
#include "models/workload/global_batch.h"
#include "models/workload/model_json.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::Answer;
using models::BreakdownPart;
using models::Comparison;
using models::Scenario;
using sim::Category;

// The columns of the times, with their unit in a file.
struct Columns {
  const char* time;
  double per_us;
  std::vector<BreakdownPart> parts;
};

const Columns& columns_of(const Scenario& s) {
  static const Columns kLayer{"time [us]",
                              1,
                              {{"attention", {Category::attention}},
                               {"router", {Category::router}},
                               {"permute", {Category::permute, Category::unpermute}},
                               {"dispatch", {Category::dispatch}},
                               {"expert", {Category::expert}},
                               {"combine", {Category::combine}},
                               {"host", {Category::host_sync}},
                               {"wait", {Category::straggler_wait}}}};
  static const Columns kStep{"step [ms]",
                             1e-3,
                             {{"attention", {Category::attention}},
                              {"experts", {Category::expert}},
                              {"router+permute", {Category::router, Category::permute, Category::unpermute}},
                              {"dispatch+combine", {Category::dispatch, Category::combine}},
                              {"dense+loss", {Category::other, Category::embedding, Category::loss}},
                              {"host", {Category::host_sync}},
                              {"wait", {Category::straggler_wait}},
                              {"p2p", {Category::p2p}},
                              {"bubble", {Category::bubble}},
                              {"grads", {Category::grad_sync}},
                              {"optimizer", {Category::optimizer}}}};
  return s.is_step() ? kStep : kLayer;
}

// Returns all figures of all dispatchers: the columns of a file.
Table summary_table(const Comparison& c) {
  const Columns& columns = columns_of(*c.scenario);
  const bool step = c.scenario->is_step();
  std::vector<Table::Column> heads{{"dispatcher", Table::Align::kLeft}, {columns.time}, {"low"}, {"high"}};
  if (step)
    for (const char* name : {"tokens/s/GPU", "TFLOP/s/GPU", "MFU"}) heads.push_back({name});
  for (const BreakdownPart& part : columns.parts) heads.push_back({part.name});
  for (const char* name :
       {"tx/rank [MB]", "max", "syncs", "overload", "dropped", "memory [GB]", "fits", "P(fits)"})
    heads.push_back({name});
  Table table(heads);
  for (const Answer& a : c.answers) {
    if (!a.ok()) continue;
    const auto time = [&](double us) { return fmt::format("{:.1f}", us * columns.per_us); };
    std::vector<std::string> row{a.dispatcher, time(a.time_us.value), time(a.time_us.low),
                                 time(a.time_us.high)};
    if (step) {
      row.push_back(fmt::format("{:.0f}", a.tokens_per_s_per_gpu()));
      row.push_back(fmt::format("{:.1f}", a.tflops_per_gpu()));
      row.push_back(fmt::format("{:.1f} %", a.mfu * 100));
    }
    for (const BreakdownPart& part : columns.parts) row.push_back(time(part.us(a.breakdown_us)));
    const SentBytes tx = sent_bytes(a);
    row.push_back(fmt::format("{:.3f}", tx.mean * 1e-6));
    row.push_back(fmt::format("{:.3f}", static_cast<double>(tx.max) * 1e-6));
    row.push_back(fmt::format("{}+{}", a.host_syncs_forward, a.host_syncs_backward));
    row.push_back(fmt::format("{:.2f}", a.overload.printed().max));
    row.push_back(a.dropped_rows > 0 ? fmt::format("{:.1f} %", 100 * a.dropped_share) : "0");
    row.push_back(fmt::format("{:.2f}", a.memory.max_bytes * 1e-9));
    row.push_back(a.memory.fits ? "yes" : fmt::format("no: {}", format_bytes(a.memory.missing_bytes)));
    row.push_back(fmt::format("{:.2f}", a.memory.fits_probability));
    table.row(row);
  }
  return table;
}

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
std::string fits_text(const models::Answer& a) {
  const double p = a.memory.fits_probability;
  const char* likely = a.memory.fits ? "yes" : "no";
  return p > 0.005 && p < 0.995 ? fmt::format("{} ({:.0f} %)", likely, 100 * p) : likely;
}

// Returns the columns that decide, few enough for a terminal. The others are in the CSV, parts of the time in --detail
// times.
Table people_table(const Comparison& c, const std::vector<std::size_t>& answers) {
  const bool step = c.scenario->is_step();
  const TimeUnit unit = unit_of(c);
  const auto any = [&](auto&& holds) {
    return std::any_of(c.answers.begin(), c.answers.end(),
                       [&](const Answer& a) { return a.ok() && holds(a); });
  };
  const bool overload = !step && any([](const Answer& a) { return a.overload.printed().max > 1.005; });
  const bool dropped = any([](const Answer& a) { return a.dropped_rows > 0; });
  std::vector<Table::Column> heads{{"dispatcher", Table::Align::kLeft},
                                   {unit.head(!c.scenario->train ? "forward"
                                              : step             ? "step"
                                                                 : "layer")},
                                   {"90 % interval"}};
  const bool shares = !c.decision.fastest.empty() && c.decision.runner_up >= 0;
  if (shares) heads.push_back({"P(fastest)", Table::Align::kRight, true});
  if (step) {
    heads.push_back({"tokens/s/GPU", Table::Align::kRight, true});
    heads.push_back({"MFU"});
  } else {
    heads.push_back({"sent/rank [MB]", Table::Align::kRight, true});
  }
  if (overload) heads.push_back({"overload"});
  if (dropped) heads.push_back({"dropped"});
  heads.push_back({"memory [GB]"});
  heads.push_back({"fits", Table::Align::kLeft});
  Table table(heads);
  for (const std::size_t i : answers) {
    const Answer& a = c.answers[i];
    std::vector<std::string> row{marked(c, i), unit.number(a.time_us.value),
                                 a.draws_us.empty() ? "-"
                                                    : fmt::format("{} to {}", unit.number(a.time_us.low),
                                                                  unit.number(a.time_us.high))};
    if (shares) row.push_back(a.ranked() ? fmt::format("{:.2f}", c.decision.fastest[i]) : "-");
    if (step) {
      row.push_back(fmt::format("{:.0f}", a.tokens_per_s_per_gpu()));
      row.push_back(fmt::format("{:.1f} %", a.mfu * 100));
    } else {
      row.push_back(fmt::format("{:.3f}", sent_bytes(a).mean * 1e-6));
    }
    if (overload) row.push_back(fmt::format("{:.2f}", a.overload.printed().max));
    if (dropped) row.push_back(fmt::format("{:.1f} %", 100 * a.dropped_share));
    row.push_back(fmt::format("{:.2f}", a.memory.max_bytes * 1e-9));
    row.push_back(fits_text(a));
    table.row(row);
    if (is_best(c, i)) table.mark_best();
  }
  return table;
}

// Returns the parts of the time, a column for each nonzero one.
Table times_table(const Comparison& c) {
  const TimeUnit unit = unit_of(c);
  std::vector<BreakdownPart> parts;
  for (const BreakdownPart& part : columns_of(*c.scenario).parts)
    if (std::any_of(c.answers.begin(), c.answers.end(),
                    [&](const Answer& a) { return a.ok() && part.us(a.breakdown_us) > 0; }))
      parts.push_back(part);
  std::vector<Table::Column> heads{{unit.head("dispatcher"), Table::Align::kLeft}, {"all"}};
  for (const BreakdownPart& part : parts) heads.push_back({part.name});
  Table table(heads);
  for (const Answer& a : c.answers) {
    if (!a.ok()) continue;
    std::vector<std::string> row{a.dispatcher, unit.number(a.time_us.value)};
    for (const BreakdownPart& part : parts) row.push_back(unit.number(part.us(a.breakdown_us)));
    table.row(row);
  }
  return table;
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

Table collective_table(const Comparison& c) {
  Table table({{"per step", Table::Align::kLeft},
               {"op", Table::Align::kLeft},
               {"ranks"},
               {"calls"},
               {"buffer [MB]"},
               {"sent [MB]"},
               {"time [us]"}});
  for (const models::TimedCollective& one : c.step_collectives)
    table.row({std::string(one.what.what), std::string(models::name_of(one.what.kind)),
               fmt::format("{}", one.what.group), fmt::format("{}", one.what.calls_per_step()),
               fmt::format("{:.3f}", static_cast<double>(one.what.bytes_per_step()) * 1e-6),
               fmt::format("{:.3f}", static_cast<double>(one.what.tx_per_step()) * 1e-6),
               microseconds(one.us_per_step())});
  return table;
}

// "PP 2 x VPP 8, EP 8, DP 16": the sizes that are not one.
std::string sizes_text(const models::Parallel& p) {
  std::vector<std::string> sizes;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1) sizes.push_back(fmt::format("{} {}", name, size));
  };
  add("TP", p.tp);
  add("CP", p.cp);
  if (p.vpp > 1)
    sizes.push_back(fmt::format("PP {} x VPP {}", p.pp, p.vpp));
  else
    add("PP", p.pp);
  add("EP", p.ep);
  add("ETP", p.etp);
  add("DP", p.dp);
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
                        format_us(w->healthy_us), percent(w->time_us.value / w->healthy_us - 1));
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
  if (w->cost > 0) text += fmt::format("cost: {}\n", cost_text(*w, *c.scenario));
  if (!w->memory.fits)
    text += fmt::format("does not fit: stage {} misses {}{}\n", w->memory.stage,
                        format_bytes(w->memory.missing_bytes),
                        // Names one change: the cheapest, which the first line contains.
                        c.fitting || !c.scenario->is_step() ? ""
                        : w->memory.recompute_that_fits.empty()
                            ? "; no recomputation makes it fit"
                            : "; --recompute " + w->memory.recompute_that_fits + " would make it fit");
  return text;
}

}  // namespace

SentBytes sent_bytes(const Answer& a) {
  const auto [low, high] = std::ranges::minmax(a.tx_bytes);
  return {
      low, high,
      std::accumulate(a.tx_bytes.begin(), a.tx_bytes.end(), 0.0) / static_cast<double>(a.tx_bytes.size())};
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
  // Of a first screen, which also holds what settles an open choice; all stand in the JSON.
  const std::size_t most = c.decision.settle.empty() ? 4 : 3;
  if (!explain && assumed.size() > most) assumed.resize(most);
  return assumed.empty() ? "" : fmt::format("assumed: {}\n", join(assumed, ", "));
}

void print_comparison(const Comparison& c, Detail detail, bool explain, std::string_view chosen) {
  print_answer(models::sentence(c));
  if (c.winner()) print_text(models::because(c) + "\n");
  print("\n");
  const std::vector<std::size_t> answers = shown_answers(c, explain);
  print(people_table(c, answers).text());
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
    print("\n" + collective_table(c).text());
  print_text(remarks(c, answers, explain), 2);
  print_text(assumed_text(c, explain), 2);
  if (!c.decision.settle.empty()) print_text(fmt::format("to settle it: {}\n", c.decision.settle), 2);
}

std::vector<std::string> to_act_on(const std::vector<std::string>& warnings, const models::Cluster& cluster,
                                   std::span<const Answer> answers) {
  std::set<std::string> notes;
  for (const Answer& a : answers) {
    if (!a.ok()) continue;
    for (const std::string& one : a.program().warnings)
      notes.insert(fmt::format("{}: {}", a.dispatcher, one));
  }
  const std::string profile = cluster.profile.name() + ": ";
  std::vector<std::string> kept;
  for (const std::string& one : warnings)
    if (!notes.contains(one) && !one.starts_with(profile)) kept.push_back(one);
  return kept;
}

Table detail_table(const Comparison& c, Detail detail) {
  if (auto table = table_of_detail(c, detail)) return *std::move(table);
  return summary_table(c);
}

std::string comparison_csv(const Comparison& c, Detail detail) { return detail_table(c, detail).csv(); }

}  // namespace moesim::tools
