#include "tools/moesim/questions/whatif_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/answers/breakdown_parts.h"
#include "models/answers/sentences.h"
#include "models/dispatchers/dispatcher.h"
#include "models/study/study.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

using nlohmann::ordered_json;

namespace {

ordered_json figures_or_error(const Answer& a) {
  return a.ok() ? figures_json(a) : ordered_json{{"dispatcher", a.dispatcher}, {"error", a.error}};
}

}  // namespace

ordered_json evaluation_json(const Comparison& e) {
  ordered_json j;
  j["dispatchers"] = ordered_json::array();
  for (const Answer& a : e.answers) j["dispatchers"].push_back(figures_or_error(a));
  if (const Answer* shortest = e.shortest()) {
    j["fastest"] = shortest->dispatcher;
    j["probability"] = or_null(e.decision.probability_of(e.decision.shortest));
    j["verdict"] = models::name_of(e.decision.verdict);
    j["recommendation"] = recommendation_json(e);
  }
  return j;
}

ordered_json whatif_result(const Base& base, const std::vector<std::string>& warnings,
                           const CommonOptions& common) {
  ordered_json result = envelope("whatif", describe_inputs(common, base.resolved.asked), warnings);
  add_model(result, base.resolved.scenario);
  return result;
}

void print_asked(const Base& base, std::span<const models::ScenarioPath> varied) {
  print_text("\n" + asked_text(base.resolved.scenario, varied) + "\n" + chosen_text(base.resolved), 2);
}

std::vector<std::string> many_to_act_on(const std::vector<std::string>& warnings, const Base& base) {
  std::vector<std::string> kept = warnings;
  // A map over machines has none of its own.
  if (const auto& cluster = base.resolved.scenario.cluster) kept = to_act_on(warnings, *cluster, {});
  std::erase_if(kept, [](const std::string& warning) {
    return std::ranges::any_of(models::dispatcher_registry(), [&](const auto& known) {
      return warning.starts_with(fmt::format("{}:", known.name));
    });
  });
  return kept;
}

std::string change_text(const models::Estimate& ratio) {
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * (ratio.value - 1), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1));
}

namespace {

using nlohmann::ordered_json;

// One parsed --set.
struct Change {
  ScenarioPath path;
  PathValue value;
  std::string from;  // the baseline's value, for people

  std::string to() const { return path.number ? shown(path, value.number) : value.text; }
  std::string text() const {
    return from.empty() ? path.path + " = " + to() : path.path + " " + from + " -> " + to();
  }
  // With a unit that both values have told once: "cluster.gpu.flops 989 -> 1978 TFLOP/s".
  std::string short_text() const {
    const std::size_t own = from.find(' '), other = to().find(' ');
    const bool same_unit =
        own != std::string::npos && other != std::string::npos && from.substr(own) == to().substr(other);
    return same_unit ? path.path + " " + from.substr(0, own) + " -> " + to() : text();
  }
};

const Answer* named(const Comparison& e, const std::string& dispatcher) {
  for (const Answer& a : e.answers)
    if (a.dispatcher == dispatcher) return &a;
  return nullptr;
}

// What runs today, and why that.
struct Today {
  const Answer* answer;
  std::string why;
  bool recommended = false;  // the recommended one, before and after a change

  // Returns what runs behind changes.
  const Answer& behind(const Comparison& after, std::span<const Change> changes) const {
    const bool other =
        std::ranges::any_of(changes, [](const Change& c) { return c.path.path == "dispatcher"; });
    const Answer* winner = after.winner();
    check(winner != nullptr, "a comparison has a winner");  // answer() throws where nothing has a forecast
    if (recommended || other) return *winner;
    const auto name = [](const std::string& text) { return text.substr(0, text.find(':')); };
    const Answer* same = named(after, answer->dispatcher);
    for (const Answer& one : after.answers)  // with another option
      if (!same && name(one.dispatcher) == name(answer->dispatcher)) same = &one;
    return same && same->ok() ? *same : *winner;
  }
};

// `said`: --baseline.
Today today_of(const Comparison& c, const std::string& said) {
  const auto found = [&](const std::string& name, std::string why) {
    return Today{&c.answers[models::answer_named(c, name, "--baseline")], std::move(why)};
  };
  if (c.anchor && said.empty()) return found(c.anchor->measured.front().dispatcher, "measured");
  if (!said.empty()) {
    Today today = found(said, "--baseline");
    if (c.anchor && c.anchor->known(today.answer->dispatcher) < 0)
      throw InputError(fmt::format("--baseline: found {} beside a measured {}, expected the measured one",
                                   said, c.anchor->measured.front().dispatcher));
    return today;
  }
  if (c.answers.size() > 1)
    if (const auto own = models::own_dispatcher(c))
      if (const Answer* a = named(c, *own); a && a->ok()) return {a, "what the job runs"};
  return {c.winner(), c.answers.size() > 1 ? "recommended" : "the only one", true};
}

// "baseline: alltoall (what the job runs)", beside others.
std::string today_text(const Today& today, const Comparison& c) {
  return c.answers.size() < 2 ? "" : fmt::format("baseline: {} ({})\n", today.answer->dispatcher, today.why);
}

ordered_json today_json(const Today& today) {
  return {{"dispatcher", today.answer->dispatcher}, {"because", today.why}};
}

// Formats a value for people: named objects by name, lists of texts joined.
template <class Json>
std::string text_of(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.template get<std::string>();
  if (value.is_object() && value.contains("name")) return text_of(value.at("name"));
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_text))
    return join(value.template get<std::vector<std::string>>(), ",");
  return value.dump();
}

Change understand(const std::string& text, const models::Scenario& resolved, const Today* today = nullptr) {
  const auto [path, value] = split_assignment(text, "--set");
  Change change;
  change.path = find_path(path);
  change.value = parse_value(change.path, value, &resolved);
  // The parameter of a routing is comparable only within the same distribution.
  const bool other_routing = change.path.path.starts_with("routing.") &&
                             !resolved.routing.text.starts_with(change.path.path.substr(8));
  if (other_routing)
    change.from = "(" + resolved.routing.text + ")";
  else if (today && !today->recommended && change.path.path == "dispatcher")
    change.from = today->answer->dispatcher;
  else if (change.path.number)
    change.from = shown(change.path, change.path.number(resolved));
  else
    change.from = text_of(models::value_at(resolved, change.path));
  return change;
}

// Returns the base with other values at some paths.
Base changed(const Base& base, const std::vector<ScenarioPath>& paths, const std::vector<PathValue>& values) {
  Question question = base.question;
  models::set_all(question, paths, values, Origin::said("--set"));
  return base.with(std::move(question), paths);
}

// Returns the base with all changes.
Base changed(const Base& base, const std::vector<Change>& changes) {
  std::vector<ScenarioPath> paths;
  std::vector<PathValue> values;
  for (const Change& change : changes) {
    for (const ScenarioPath& other : paths)
      if (other.path == change.path.path)
        throw InputError(fmt::format("--set: found {} twice, expected each path once", other.path));
    paths.push_back(change.path);
    values.push_back(change.value);
  }
  return changed(base, paths, values);
}

ordered_json change_json(const Change& c) {
  ordered_json j{{"path", c.path.path}};
  if (!c.from.empty()) j["from"] = c.from;
  j["to"] = c.value.json;
  j["text"] = c.text();
  return j;
}

// A part of the time that differs before and after.
struct Moved {
  std::string category;
  double before_us = 0, after_us = 0;
  double difference() const { return after_us - before_us; }
};

std::vector<Moved> moved_parts(const Answer& before, const Answer& after,
                               const std::vector<models::BreakdownPart>& all_parts) {
  std::vector<Moved> parts;
  for (const models::BreakdownPart& part : all_parts) {
    const double was = part.us(before.breakdown_us), is = part.us(after.breakdown_us);
    if (was > 0 || is > 0) parts.push_back({part.name, was, is});
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Moved& a, const Moved& b) {
    return std::abs(a.difference()) > std::abs(b.difference());
  });
  return parts;
}

// Returns every category separately.
std::vector<models::BreakdownPart> all_categories() {
  std::vector<models::BreakdownPart> all;
  for (std::size_t c = 0; c < sim::kCategories; ++c) {
    const auto category = static_cast<sim::Category>(c);
    all.push_back({std::string(sim::name(category)), {category}});
  }
  return all;
}

std::vector<Moved> moved_parts(const Answer& before, const Answer& after) {
  return moved_parts(before, after, all_categories());
}

// Returns the parts that explain the difference; where another rank is last after the change, computing and
// waiting count as one.
std::vector<Moved> reasons(const Answer& before, const Answer& after) {
  return moved_parts(before, after,
                     models::comparable_parts(all_categories(), before.breakdown_us, after.breakdown_us));
}

// Returns the ratio of throughputs, after over before.
models::Estimate throughput_ratio(const Answer& before, const Answer& after) {
  const models::Estimate time = ratio(before, after);
  const double work =
      after.tokens / static_cast<double>(after.gpus) / (before.tokens / static_cast<double>(before.gpus));
  return {work / time.value, work / time.high, work / time.low};
}

bool same_work(const Answer& a, const Answer& b) {
  return std::abs(a.tokens / static_cast<double>(a.gpus) / (b.tokens / static_cast<double>(b.gpus)) - 1) <
         1e-9;
}

// Lists the parts that made a difference, and those that worked against it.
std::string moved_text(const std::vector<Moved>& parts, double difference_us) {
  std::vector<const Moved*> with, against;
  for (const Moved& part : parts)
    if (std::abs(part.difference()) > 0.005)
      (part.difference() * difference_us > 0 ? with : against).push_back(&part);
  if (with.empty()) return "";
  const auto name = [](const Moved& part) {
    return fmt::format("{} ({} against {})", part.category, format_us(part.after_us),
                       format_us(part.before_us));
  };
  const double much = 0.25 * std::abs(with.front()->difference());
  std::string text = ", most of it in " + name(*with.front());
  if (with.size() > 1 && std::abs(with[1]->difference()) > much) text += ", then " + name(*with[1]);
  if (!against.empty() && std::abs(against.front()->difference()) > much)
    text += "; the other way went " + name(*against.front());
  return text;
}

std::string because(const Today& today, const Answer& a) {
  const Answer& b = *today.answer;
  const models::Estimate r = ratio(b, a), d = difference_us(b, a);
  constexpr double kVisible = 0.0005;  // of the percentages that are shown
  const bool same = std::ranges::all_of(std::array{r.value, r.low, r.high},
                                        [](double one) { return std::abs(one - 1) < kVisible; });
  std::string text = same ? fmt::format("No difference: {} before and after", format_us(a.time_us.value))
                          : fmt::format("{} becomes {}: {}", format_us(b.time_us.value),
                                        format_us(a.time_us.value), change_text(r));
  if (!same) text += moved_text(reasons(b, a), d.value);
  text += '.';
  if (!same && d.low < 0 && d.high > 0 && d.low < d.high)
    text += " The interval holds zero: it may be no difference.";
  if (a.dispatcher != b.dispatcher)
    text += today.recommended
                ? fmt::format(" The fastest dispatcher is now {}, before {}.", a.dispatcher, b.dispatcher)
                : fmt::format(" The dispatcher is now {}, before {} ({}).", a.dispatcher, b.dispatcher,
                              today.why);
  if (!same_work(a, b))
    text += fmt::format(" The work is not the same: tokens per second and GPU change by {}.",
                        change_text(throughput_ratio(b, a)));
  if (b.memory.fits && !a.memory.fits) text += " It no longer fits into memory.";
  if (!b.memory.fits && a.memory.fits) text += " Now it fits into memory.";
  return text;
}

// Calls row(name, before, after) for each dispatcher, null where it has no answer.
template <class Row>
void add_dispatchers(const Comparison& before, const Comparison& after, const Row& row) {
  for (const Answer& b : before.answers) row(b.dispatcher, &b, named(after, b.dispatcher));
  for (const Answer& a : after.answers)
    if (!named(before, a.dispatcher)) row(a.dispatcher, nullptr, &a);
}

Table side_by_side(const Comparison& before, const Comparison& after, const Answer& b, const Answer& a) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"baseline [us]"},
               {"change [us]"},
               {"difference [us]"},
               {"low"},
               {"high"},
               {"time", Table::Align::kLeft},
               {"tokens/s/GPU"},
               {"memory [GB]"}});
  const auto row = [&](const std::string& name, const Answer* b, const Answer* a) {
    const auto time = [](const Answer* x) {
      return x && x->ok() ? microseconds(x->time_us.value) : std::string("-");
    };
    std::vector<std::string> cells{name, time(b), time(a)};
    if (b && a && b->ok() && a->ok()) {
      const models::Estimate d = difference_us(*b, *a);
      cells.insert(cells.end(), {fmt::format("{:+.1f}", d.value), fmt::format("{:+.1f}", d.low),
                                 fmt::format("{:+.1f}", d.high), change_text(ratio(*b, *a))});
    } else {
      cells.insert(cells.end(), {"-", "-", "-", "-"});
    }
    const auto pair = [&](auto&& value) {
      return fmt::format("{} -> {}", b && b->ok() ? value(*b) : "-", a && a->ok() ? value(*a) : "-");
    };
    cells.push_back(pair([](const Answer& x) { return fmt::format("{:.0f}", x.tokens_per_s_per_gpu()); }));
    cells.push_back(pair([](const Answer& x) {
      return fmt::format("{:.1f}{}", x.memory.max_bytes * 1e-9, x.memory.fits ? "" : " (no)");
    }));
    table.row(cells);
  };
  add_dispatchers(before, after, row);
  table.separator();
  row("fastest", before.winner(), after.winner());
  if (&b != before.winner() || &a != after.winner()) row("baseline and change", &b, &a);
  return table;
}

// A table with fewer columns, in the most readable unit; the JSON has the reasons of missing forecasts.
Table people_side_by_side(const Comparison& before, const Comparison& after, const TimeUnit& unit) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {unit.head("before")},
               {"after"},
               {"change", Table::Align::kLeft},
               {"fits", Table::Align::kLeft},
               {"memory [GB]", Table::Align::kRight, true},
               {"tokens/s/GPU", Table::Align::kRight, true}});
  add_dispatchers(before, after, [&](const std::string& name, const Answer* b, const Answer* a) {
    const bool had = b && b->ok(), has = a && a->ok();
    const auto pair = [&](auto&& value) {
      const std::string from = had ? value(*b) : "-", to = has ? value(*a) : "-";
      return from == to ? from : from + " -> " + to;
    };
    table.row({name, had ? unit.number(b->time_us.value) : "-", has ? unit.number(a->time_us.value) : "-",
               had && has ? change_text(ratio(*b, *a)) : "-",
               pair([](const Answer& x) { return x.memory.fits ? "yes" : "no"; }),
               pair([](const Answer& x) { return fmt::format("{:.1f}", x.memory.max_bytes * 1e-9); }),
               pair([](const Answer& x) { return fmt::format("{:.0f}", x.tokens_per_s_per_gpu()); })});
    if (has && a->dispatcher == after.winner()->dispatcher) table.mark_best();
  });
  return table;
}

// Where the time goes, before and after.
std::string bars_text(const Answer& b, const Answer& a, const TimeUnit& unit) {
  std::vector<BarRow> rows;
  for (const auto& [name, answer] : {std::pair{"before", &b}, {"after", &a}})
    rows.push_back({fmt::format("{} {}", name, answer->dispatcher), breakdown_parts(answer->breakdown_us),
                    unit.number(answer->time_us.value)});
  return bar_chart(rows);
}

// The warnings of both that another option or file answers.
std::vector<std::string> warnings_to_act_on(const std::vector<std::string>& warnings, const Base& base,
                                            const Comparison& before, const Comparison& after) {
  std::vector<std::string> kept = to_act_on(warnings, *before.scenario->cluster, before.answers);
  kept = to_act_on(kept, *after.scenario->cluster, after.answers);
  // Notes stand below the answer already.
  std::erase_if(kept, [&](const std::string& warning) {
    return std::ranges::find(base.resolved.notes, warning) != base.resolved.notes.end();
  });
  return kept;
}

std::string costs_text(const Comparison& before, const Comparison& after, const Answer& b, const Answer& a) {
  if (b.cost <= 0 && a.cost <= 0) return "";
  return fmt::format("cost: {}; before {}\n", a.cost > 0 ? cost_text(a, *after.scenario) : "no price",
                     b.cost > 0 ? cost_text(b, *before.scenario) : "no price");
}

// Returns the options for the changed scenario: anchored to the run of the original.
models::AnswerOptions of_change(models::AnswerOptions asked, const Comparison& before) {
  asked.measured.clear();
  asked.anchor = before.anchor ? &*before.anchor : nullptr;
  return asked;
}

}  // namespace

Base with_changes(const Base& base, const std::vector<std::string>& sets) {
  if (sets.empty()) return base;
  models::Scenario resolved = base.resolved.scenario;
  resolved.resolve();
  std::vector<Change> changes;
  changes.reserve(sets.size());
  for (const std::string& text : sets) changes.push_back(understand(text, resolved));
  return changed(base, changes);
}

int run_changes(const Base& base, const std::vector<std::string>& sets, const std::string& said,
                const models::AnswerOptions& asked, const CommonOptions& common) {
  const Comparison before = ask(base.resolved.scenario, asked);
  if (print_unexplained("whatif", before, common)) return 1;
  const Today today = today_of(before, said);
  std::vector<Change> changes;
  changes.reserve(sets.size());
  for (const std::string& text : sets) changes.push_back(understand(text, *before.scenario, &today));
  const Base other = changed(base, changes);
  const Comparison after = ask(other.resolved.scenario, of_change(asked, before));
  std::vector<std::string> warnings = before.warnings;
  add_new(warnings, after.warnings);
  const Answer &b = *today.answer, &a = today.behind(after, changes);
  if (wants_result(common)) {
    ordered_json result = whatif_result(base, warnings, common);
    result["today"] = today_json(today);
    result["today"]["then"] = a.dispatcher;
    result["changes"] = ordered_json::array();
    for (const Change& change : changes) result["changes"].push_back(change_json(change));
    result["baseline"] = evaluation_json(before);
    result["change"] = evaluation_json(after);
    result["difference"] = {{"time_us", estimate_json(difference_us(b, a))},
                            {"ratio", estimate_json(ratio(b, a))},
                            {"throughput_ratio", estimate_json(throughput_ratio(b, a))}};
    result["differences"] = ordered_json::array();
    for (const Answer& one : before.answers)
      if (const Answer* other = named(after, one.dispatcher); other && one.ok() && other->ok())
        result["differences"].push_back({{"dispatcher", one.dispatcher},
                                         {"time_us", estimate_json(difference_us(one, *other))},
                                         {"ratio", estimate_json(ratio(one, *other))}});
    result["parts"] = ordered_json::array();
    for (const Moved& part : moved_parts(b, a))
      result["parts"].push_back({{"category", part.category},
                                 {"baseline_us", part.before_us},
                                 {"change_us", part.after_us},
                                 {"difference_us", part.difference()}});
    result["because"] = because(today, a);
    if (before.anchor) result["anchor"] = anchor_json(*before.anchor);
    if (publish(result, common)) {
      warn_below(common, warnings);
      return 0;
    }
  }
  if (common.format == Format::kCsv) {
    print(side_by_side(before, after, b, a).csv());
    warn_below(common, warnings);
    return 0;
  }
  const TimeUnit unit = TimeUnit::of(std::max(b.time_us.value, a.time_us.value));
  print_answer(because(today, a));
  print_text("Then: " + models::sentence(after) + "\n");
  print("\n" + people_side_by_side(before, after, unit).text() + "\n" + bars_text(b, a, unit) + "\n");
  print_text(question_text(after) + today_text(today, before), 2);
  for (const Change& change : changes) print_text("changed: " + change.text() + "\n", 2);
  print_text(chosen_text(base.resolved), 2);
  if (other.resolved.chosen.options != base.resolved.chosen.options)
    print_text(fmt::format("plan chosen for the change: {}\n", other.resolved.chosen.options), 2);
  print_text(costs_text(before, after, b, a), 2);
  print_text(assumed_text(after), 2);
  if (before.anchor) print("\n" + anchor_text(before));
  warn_below(common, warnings_to_act_on(warnings, base, before, after));
  return 0;
}

namespace {

using Answers = models::Study<Comparison>;

// One change by itself, answered.
struct EachRow {
  Change change;
  const Answers::Row* after;
  const Answer* answer = nullptr;  // of what runs then; null without a forecast
  double gain = 0;

  const std::string& error() const { return after->error; }
  bool fits() const { return answer && answer->memory.fits; }
};

ordered_json ranking_json(const Today& today, const std::vector<EachRow>& rows) {
  const Answer& b = *today.answer;
  ordered_json ranking = ordered_json::array();
  for (const EachRow& row : rows) {
    ordered_json j = change_json(row.change);
    if (!row.answer) {
      j["error"] = row.error();
    } else {
      const Answer& a = *row.answer;
      j["dispatcher"] = a.dispatcher;
      j["time_us"] = estimate_json(a.time_us);
      j["difference_us"] = estimate_json(difference_us(b, a));
      j["ratio"] = estimate_json(ratio(b, a));
      j["throughput_ratio"] = estimate_json(throughput_ratio(b, a));
      if (a.cost > 0) j["cost_per_million_tokens"] = a.cost_per_million_tokens();
      j["fits"] = a.memory.fits;
      j["fits_probability"] = a.memory.fits_probability;
      j["because"] = because(today, a);
    }
    ranking.push_back(std::move(j));
  }
  return ranking;
}

// `people`: without the reasons, which do not fit into 100 columns; they are in the JSON and on the page.
Table ranking_table(const Answer& b, const std::vector<EachRow>& rows, bool people) {
  const bool cost = b.cost > 0;
  double largest = b.time_us.value;
  for (const EachRow& row : rows)
    if (row.answer) largest = std::max(largest, row.answer->time_us.value);
  const TimeUnit unit = people ? TimeUnit::of(largest) : TimeUnit::us();
  std::vector<Table::Column> columns{{"change", Table::Align::kLeft}, {unit.head("time")}};
  if (!people) columns.push_back({"time", Table::Align::kLeft});
  columns.push_back({"tokens/s/GPU", Table::Align::kLeft});
  columns.push_back({"dispatcher", Table::Align::kLeft, people});
  if (cost) columns.push_back({"per 10^6 tokens", Table::Align::kRight, people});
  if (!people) columns.push_back({"moved most", Table::Align::kLeft});
  Table table(columns);
  const auto add = [&](const std::string& name, const Answer* a, const std::string& error) {
    std::vector<std::string> cells{name};
    if (!a) {
      cells.resize(columns.size(), "-");
      if (!people) cells.back() = error;
      table.row(cells);
      return;
    }
    cells.push_back(unit.number(a->time_us.value));
    if (!people) cells.push_back(change_text(ratio(b, *a)));
    cells.push_back(change_text(throughput_ratio(b, *a)));
    cells.push_back(a->dispatcher + (a->memory.fits ? "" : " (does not fit)"));
    if (cost) cells.push_back(a->cost > 0 ? fmt::format("{:.4g}", a->cost_per_million_tokens()) : "-");
    const auto parts = reasons(b, *a);
    const bool any = !parts.empty() && std::abs(parts.front().difference()) > 0.05;
    if (!people)
      cells.push_back(
          any ? fmt::format("{} {} us", parts.front().category, unit.difference(parts.front().difference()))
              : "");
    table.row(cells);
  };
  for (const EachRow& row : rows)
    add(people ? row.change.short_text() : row.change.text(), row.answer, row.error());
  table.separator();
  add("baseline", &b, "");
  return table;
}

}  // namespace

int run_each(const Base& base, const std::vector<std::string>& sets, const std::string& said,
             const models::AnswerOptions& asked, const CommonOptions& common) {
  const Comparison before = ask(base.resolved.scenario, asked);
  if (print_unexplained("whatif", before, common)) return 1;
  const Today today = today_of(before, said);
  const Answer& b = *today.answer;
  std::vector<Change> changes;
  std::vector<models::Point> points;
  for (const std::string& text : sets) {
    const Change& change = changes.emplace_back(understand(text, *before.scenario, &today));
    points.push_back(models::Point::of(change.path, change.value));
  }
  Answers study(
      [&]() -> Answers::Asker {
        return [&](const models::Point& point) {
          return ask(changed(base, *point.paths, point.values).resolved.scenario, of_change(asked, before));
        };
      },
      {.threads = common.threads});
  const std::vector<Answers::Row*> answers = study.rows(points);
  std::vector<EachRow> rows;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EachRow& row = rows.emplace_back(EachRow{changes[i], answers[i]});
    if (!answers[i]->ok()) continue;
    row.answer = &today.behind(answers[i]->answer, {&changes[i], 1});
    row.gain = throughput_ratio(b, *row.answer).value;
  }
  if (std::ranges::none_of(answers, &Answers::Row::ok))
    throw InputError(fmt::format("{}: {}", rows.front().change.text(), answers.front()->error));
  std::vector<std::string> warnings = before.warnings;
  for (const EachRow& row : rows)
    for (const std::string& warning : row.after->answer.warnings)
      if (std::find(before.warnings.begin(), before.warnings.end(), warning) == before.warnings.end())
        add_new(warnings, {row.change.text() + ": " + warning});
  // A change that does not fit the memory helps less than one that does.
  std::stable_sort(rows.begin(), rows.end(), [](const EachRow& x, const EachRow& y) {
    return std::pair(x.fits(), x.gain) > std::pair(y.fits(), y.gain);
  });
  const std::string answer = fmt::format("{} helps most: {} tokens/s/GPU.", rows.front().change.text(),
                                         change_text(throughput_ratio(b, *rows.front().answer))) +
                             (rows.front().fits() ? "" : " It does not fit into memory.");
  if (wants_result(common)) {
    ordered_json result = whatif_result(base, warnings, common);
    result["answer"] = answer;
    result["today"] = today_json(today);
    result["baseline"] = evaluation_json(before);
    result["ranking"] = ranking_json(today, rows);
    if (publish(result, common)) return 0;
  }
  const Table table = ranking_table(b, rows, common.format == Format::kTable);
  if (common.format == Format::kCsv) {
    print(table.csv());
    return 0;
  }
  print_answer(answer);
  print("\n" + table.text());
  for (const EachRow& row : rows)
    if (!row.answer) print_text(fmt::format("{}: {}\n", row.change.text(), row.error()), 2);
  print_text("\neach change by itself, the most helpful first: " + question_text(before), 2);
  print_text(today_text(today, before) + chosen_text(base.resolved) + assumed_text(before), 2);
  warn_below(common, warnings_to_act_on(before.warnings, base, before, before));
  return 0;
}

}  // namespace moesim::tools
