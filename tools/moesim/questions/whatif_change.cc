#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
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
#include "tools/moesim/questions/whatif.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

using nlohmann::ordered_json;

Columns<Answer> columns_of(Of<Answer>) {
  return Columns<Answer>().either(
      &Answer::ok, figures(),
      {{"dispatcher", &Answer::dispatcher}, {"error", &Answer::error, "why there is no forecast"}});
}

Columns<Evaluation> columns_of(Of<Evaluation>) {
  using C = Comparison;
  const auto comparison = [](const Evaluation& e) -> const C& { return e.comparison; };
  const Columns<C> figures{
      {"dispatchers", &C::answers},
      {"fastest", [](const C& c) { return c.shortest()->dispatcher; }},
      {"probability", [](const C& c) { return c.decision.probability_of(c.decision.shortest); },
       "share of the draws of the profile under which it is the fastest; null without draws"},
      {"verdict", [](const C& c) { return models::name_of(c.decision.verdict); }, "of the recommendation"},
      {"recommendation", recommendation()}};
  const auto runs = [](const Evaluation& e) {
    return e.runs ? std::optional(e.runs->dispatcher) : std::nullopt;
  };
  return Columns<Evaluation>()
      .add(figures, comparison)
      .add({{"dispatcher?", runs, "--set: what runs, and what differences are of"}});
}

int show_whatif(const Base& base, const std::vector<std::string>& warnings, const ordered_json& figures,
                const ordered_json& rows, const CommonOptions& common, const std::function<void()>& people) {
  if (wants_result(common)) {
    ordered_json result = envelope("whatif", describe_inputs(common, base.resolved.asked), warnings);
    add_model(result, base.resolved.scenario);
    result.update(figures);
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(csv_of(rows));
    warn_below(common, warnings);
  } else {
    people();
  }
  return 0;
}

void print_asked(const Base& base, const std::vector<std::string>& warnings, const CommonOptions& common,
                 std::span<const ScenarioPath> varied) {
  print_text("\n" + asked_text(base.resolved.scenario, varied) + "\n" + chosen_text(base.resolved), 2);
  std::vector<std::string> kept = warnings;
  // A map over machines has none of its own.
  if (const auto& cluster = base.resolved.scenario.cluster) kept = to_act_on(warnings, *cluster, {});
  std::erase_if(kept, [](const std::string& warning) {
    return std::ranges::any_of(models::dispatcher_registry(), [&](const auto& known) {
      return warning.starts_with(fmt::format("{}:", known.name));
    });
  });
  warn_below(common, kept);
}

PointRow PointRow::of(const Comparison& c) {
  PointRow row;
  const Answer& best = *c.shortest();
  row.fastest = best.dispatcher;
  row.probability = c.decision.probability_of(c.decision.shortest);
  row.fits = c.winner() && c.winner()->memory.fits;
  double second = 0;
  for (const Answer& a : c.answers) {
    if (!a.ok()) continue;
    row.time_us.emplace_back(a.dispatcher, a.time_us);
    if (&a != &best && a.ranked() && (second == 0 || a.time_us.value < second)) second = a.time_us.value;
  }
  if (second > 0) row.speedup = second / best.time_us.value;
  row.warnings = c.warnings;
  return row;
}

Columns<PointRow> point_figures(bool intervals) {
  Columns<PointRow> found{{"fastest", &PointRow::fastest},
                          {"probability", &PointRow::probability},
                          {"speedup", &PointRow::speedup, "of the fastest over the second"},
                          {"fits", &PointRow::fits}};
  if (intervals)
    found.add({{"time_us", &PointRow::time_us}});
  else
    found.add({{"time_us", [](const PointRow& row) {
                  nlohmann::ordered_map<std::string, double> all;
                  for (const auto& [name, us] : row.time_us) all[name] = us.value;
                  return all;
                }}});
  return Columns<PointRow>().either(&PointRow::ok, std::move(found), {{"error", &PointRow::error}});
}

std::vector<std::string> dispatchers_of(std::span<const PointRow> rows) {
  std::vector<std::string> names;
  for (const PointRow& row : rows)
    for (const auto& [name, us] : row.time_us)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

Base taking_part(const Base& base, const std::string& between) {
  if (between.empty()) return base;
  Question question = base.question;
  models::set(question.said, find_path("dispatcher"), nlohmann::json(between), Origin::said("--between"));
  return base.with(std::move(question));
}

namespace {

// Formats a ratio of times as "-3.1 % (-3.4 to -2.8)".
std::string change_text(const models::Estimate& ratio) {
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * (ratio.value - 1), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1));
}

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

models::Point point_of(const std::vector<Change>& changes) {
  std::vector<ScenarioPath> paths;
  models::Point point;
  for (const Change& change : changes) {
    if (std::ranges::find(paths, change.path.path, &ScenarioPath::path) != paths.end())
      throw InputError(fmt::format("--set: found {} twice, expected each path once", change.path.path));
    paths.push_back(change.path);
    point.values.push_back(change.value);
  }
  point.paths = std::make_shared<const std::vector<ScenarioPath>>(std::move(paths));
  return point;
}

// Returns the base with other values at some paths.
Base changed(const Base& base, const models::Point& point) {
  Question question = base.question;
  models::set_all(question, *point.paths, point.values, Origin::said("--set"));
  return base.with(std::move(question), *point.paths);
}

Columns<Change> columns_of(Of<Change>) {
  return {{"path", [](const Change& c) { return c.path.path; }},
          {"from?", [](const Change& c) { return where(!c.from.empty(), c.from); }},
          {"to", [](const Change& c) { return ordered_json(c.value.json); },
           "as in the scenario file, in SI units"},
          {"text", &Change::text, "for people: path, before, after"}};
}

// A part of the time that differs before and after.
struct Moved {
  std::string category;
  double before_us = 0, after_us = 0;
  double difference() const { return after_us - before_us; }
};

Columns<Moved> columns_of(Of<Moved>) {
  return {{"category", &Moved::category},
          {"baseline_us", &Moved::before_us},
          {"change_us", &Moved::after_us},
          {"difference_us", &Moved::difference}};
}

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

// A dispatcher, null where it has no forecast.
struct Pair {
  std::string dispatcher;
  const Answer *before, *after;

  bool both() const { return before && after; }
};

std::vector<Pair> pairs_of(const Comparison& before, const Comparison& after) {
  const auto forecast = [](const Answer* a) { return a && a->ok() ? a : nullptr; };
  std::vector<Pair> all;
  for (const Answer& b : before.answers)
    all.push_back({b.dispatcher, forecast(&b), forecast(named(after, b.dispatcher))});
  for (const Answer& a : after.answers)
    if (!named(before, a.dispatcher)) all.push_back({a.dispatcher, nullptr, forecast(&a)});
  return all;
}

Columns<Pair> differences() {
  return {{"time_us", [](const Pair& p) { return difference_us(*p.before, *p.after); }},
          {"ratio", [](const Pair& p) { return ratio(*p.before, *p.after); }}};
}

Columns<Pair> columns_of(Of<Pair>) {
  return Columns<Pair>{{"dispatcher", &Pair::dispatcher}}.add(differences());
}

// As CSV.
Columns<Pair> side_by_side() {
  const Columns<Answer> figures{{"time_us", [](const Answer& a) { return a.time_us.value; }},
                                {"tokens_per_s_per_gpu", &Answer::tokens_per_s_per_gpu},
                                {"memory_bytes", [](const Answer& a) { return a.memory.max_bytes; }},
                                {"fits", [](const Answer& a) { return a.memory.fits; }}};
  const auto of = [&](const Answer* Pair::*one) {
    return Columns<Pair>().add(figures, [one](const Pair& p) -> const Answer& { return *(p.*one); });
  };
  return {{"dispatcher", &Pair::dispatcher},
          {"baseline?", of(&Pair::before), "", [](const Pair& p) { return p.before != nullptr; }},
          {"change?", of(&Pair::after), "", [](const Pair& p) { return p.after != nullptr; }},
          {"difference?", differences(), "", &Pair::both}};
}

// A figure before and after, once where it stays.
template <class Value>
std::string both(const Pair& p, Value value) {
  const std::string from = p.before ? value(*p.before) : "-", to = p.after ? value(*p.after) : "-";
  return from == to ? from : fmt::format("{} -> {}", from, to);
}

// In the most readable unit; the JSON has the reasons of missing forecasts.
Table side_by_side(const Comparison& before, const Comparison& after, const TimeUnit& unit) {
  using P = const Pair&;
  using A = const Answer&;
  const auto time = [](const Answer* a) { return a ? std::optional(a->time_us.value) : std::nullopt; };
  const auto change = [](P p) { return p.both() ? change_text(ratio(*p.before, *p.after)) : "-"; };
  const auto fits = [](A a) { return std::string(a.memory.fits ? "yes" : "no"); };
  const auto memory = [](A a) { return fmt::format("{:.1f}", a.memory.max_bytes * 1e-9); };
  const auto speed = [](A a) { return fmt::format("{:.0f}", a.tokens_per_s_per_gpu()); };
  return people_table<Pair>(
      {{"", &Pair::dispatcher, "", "dispatcher"},
       {"", [=](P p) { return time(p.before); }, "", time_head(unit.head("before"), unit)},
       {"", [=](P p) { return time(p.after); }, "", time_head("after", unit)},
       {"", change, "", "change"},
       {"", [=](P p) { return both(p, fits); }, "", "fits"},
       {"", [=](P p) { return both(p, memory); }, "", "memory [GB]"},
       {"", [=](P p) { return both(p, speed); }, "", "tokens/s/GPU"}},
      pairs_of(before, after), {"memory [GB]", "tokens/s/GPU"},
      [&](P p) { return p.after && p.after->dispatcher == after.winner()->dispatcher; });
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
  return changed(base, point_of(changes));
}

namespace {

// What a change makes of the question.
struct Changed {
  Comparison comparison = {};
  std::string plan = {};  // that was chosen for it
};
using Answers = models::Study<Changed>;

// What was asked: a baseline, and what somebody runs today.
struct Asked {
  const Base& base;
  const Comparison& before;
  const Today& today;
  const CommonOptions& common;
  bool each;
  std::vector<std::string> warnings;
};

// Changes at once, answered.
struct ChangedRow {
  const Asked* asked;
  std::vector<Change> changes;
  const Answers::Row* row;
  const Answer* answer = nullptr;  // of what runs then; null without a forecast
  double gain = 0;

  bool fits() const { return answer && answer->memory.fits; }
  const Change& first() const { return changes.front(); }
  const Answer& before() const { return *asked->today.answer; }
  const Answer& after() const { return *answer; }
  const Comparison& changed() const { return row->answer.comparison; }
  std::string why() const { return because(asked->today, after()); }
};

Columns<ChangedRow> today_columns() {
  using R = ChangedRow;
  return {
      {"today",
       {{"dispatcher", [](const R& r) { return r.before().dispatcher; }},
        {"because", [](const R& r) { return r.asked->today.why; }},
        {"then?", [](const R& r) { return where(!r.asked->each, r.answer ? r.answer->dispatcher : ""); }}},
       "what runs in the baseline, what then runs behind --set, and why"}};
}

Evaluation baseline(const ChangedRow& r) { return {r.asked->before, &r.before()}; }
Evaluation change(const ChangedRow& r) { return {r.changed(), r.answer}; }

Columns<ChangedRow> change_columns() {
  using R = ChangedRow;
  Columns<Pair> difference = differences();
  difference.add({{"throughput_ratio", [](const Pair& p) { return throughput_ratio(*p.before, *p.after); }}});
  const auto pair = [](const R& r) { return Pair{"", &r.before(), r.answer}; };
  const auto pairs = [](const R& r) {
    std::vector<Pair> all = pairs_of(r.asked->before, r.changed());
    std::erase_if(all, std::not_fn(&Pair::both));
    return all;
  };
  const auto parts = [](const R& r) { return moved_parts(r.before(), r.after(), all_categories()); };
  return today_columns()
      .add({{"changes", &R::changes}, {"baseline", baseline}, {"change", change}})
      .add(Columns<Pair>{{"difference", difference}}, pair)
      .add({{"differences", pairs},
            {"parts", parts},
            {"because", &R::why, "one sentence"},
            {"anchor?", [](const R& r) { return r.asked->before.anchor; }}});
}

int show_change(const Asked& asked, const ChangedRow& row) {
  const Base& base = asked.base;
  const Today& today = asked.today;
  const Comparison &before = asked.before, &after = row.row->answer.comparison;
  const Answer &b = *today.answer, &a = *row.answer;
  ordered_json csv = ordered_json::array();
  for (const Pair& pair : pairs_of(before, after)) csv.push_back(side_by_side().json(pair));
  return show_whatif(base, asked.warnings, change_columns().json(row), csv, asked.common, [&] {
    const TimeUnit unit = TimeUnit::of(std::max(b.time_us.value, a.time_us.value));
    print_answer(because(today, a));
    print_text("Then: " + models::sentence(after) + "\n");
    print("\n" + side_by_side(before, after, unit).text() + "\n" + bars_text(b, a, unit) + "\n");
    print_text(question_text(after) + today_text(today, before), 2);
    for (const Change& change : row.changes) print_text("changed: " + change.text() + "\n", 2);
    print_text(chosen_text(base.resolved), 2);
    if (row.row->answer.plan != base.resolved.chosen.options)
      print_text(fmt::format("plan chosen for the change: {}\n", row.row->answer.plan), 2);
    print_text(costs_text(before, after, b, a), 2);
    print_text(assumed_text(after), 2);
    if (before.anchor) print("\n" + anchor_text(before));
    warn_below(asked.common, warnings_to_act_on(asked.warnings, base, before, after));
  });
}

Columns<ChangedRow> columns_of(Of<ChangedRow>) {
  using R = ChangedRow;
  const auto to_before = [](auto of) { return [of](const R& r) { return of(r.before(), r.after()); }; };
  Columns<R> found;
  found.add(figures().some({"dispatcher", "time_us"}), &R::after)
      .add({{"difference_us", to_before(difference_us)},
            {"ratio", to_before(ratio)},
            {"throughput_ratio", to_before(throughput_ratio)}})
      .add(figures().some({"cost_per_million_tokens", "fits", "fits_probability"}), &R::after)
      .add({{"because", &R::why, "one sentence"}});
  return Columns<R>()
      .add(columns_of(Of<Change>{}), &R::first)
      .either([](const R& r) { return r.answer != nullptr; }, std::move(found),
              {{"error", [](const R& r) { return r.row->error; }}});
}

using Ranking = std::vector<ChangedRow>;

std::string answer_of(const Ranking& rows) {
  return fmt::format("{} helps most: {} tokens/s/GPU.", rows.front().first().text(),
                     change_text(throughput_ratio(rows.front().before(), rows.front().after()))) +
         (rows.front().fits() ? "" : " It does not fit into memory.");
}

Columns<Ranking> ranking_columns() {
  const auto first = [](const Ranking& rows) { return rows.front(); };
  Columns<Ranking> all{{"answer", answer_of, "which change helps most"}};
  return all.add(today_columns(), first)
      .add(Columns<ChangedRow>{{"baseline", baseline}}, first)
      .add({{"ranking", std::identity()}});
}

// A change and what then runs, or nothing.
struct Ranked {
  std::string name;
  const Answer* answer;
};

// Without the reasons, which do not fit into 100 columns; they are in the JSON and on the page.
Table ranking_table(const Answer& b, const std::vector<ChangedRow>& rows) {
  using R = const Ranked&;
  std::vector<Ranked> all(rows.size());
  std::ranges::transform(rows, all.begin(), [](const ChangedRow& row) {
    return Ranked{row.first().short_text(), row.answer};
  });
  double largest = b.time_us.value;
  for (R r : all) largest = std::max(largest, r.answer ? r.answer->time_us.value : 0);
  const TimeUnit unit = TimeUnit::of(largest);
  using A = const Answer&;
  const auto words = [](auto of) {
    return [of](R r) -> std::string { return r.answer ? of(*r.answer) : "-"; };
  };
  const auto time = [](R r) { return r.answer ? std::optional(r.answer->time_us.value) : std::nullopt; };
  const auto price = [](A a) -> std::string {
    return a.cost > 0 ? fmt::format("{:.4g}", a.cost_per_million_tokens()) : "-";
  };
  const Columns<Ranked> columns{
      {"", &Ranked::name, "", "change"},
      {"", time, "", time_head(unit.head("time"), unit)},
      {"", words([&](A a) { return change_text(throughput_ratio(b, a)); }), "", "tokens/s/GPU"},
      {"", words([](A a) { return a.dispatcher + (a.memory.fits ? "" : " (does not fit)"); }), "",
       "dispatcher"},
      {"", words(price), "", b.cost > 0 ? "per 10^6 tokens" : Head()}};
  Table table = people_table(columns, all, {"dispatcher", "per 10^6 tokens"});
  table.separator();
  table.row(columns.cells({}, {"baseline", &b}));
  return table;
}

int show_ranking(Asked& asked, std::vector<ChangedRow> rows) {
  const Comparison& before = asked.before;
  const Today& today = asked.today;
  for (const ChangedRow& row : rows)
    for (const std::string& warning : row.row->answer.comparison.warnings)
      if (std::ranges::find(before.warnings, warning) == before.warnings.end())
        add_new(asked.warnings, {row.first().text() + ": " + warning});
  // A change that does not fit the memory helps less than one that does.
  std::stable_sort(rows.begin(), rows.end(), [](const ChangedRow& x, const ChangedRow& y) {
    return std::pair(x.fits(), x.gain) > std::pair(y.fits(), y.gain);
  });
  const ordered_json figures = ranking_columns().json(rows);
  return show_whatif(asked.base, asked.warnings, figures, figures["ranking"], asked.common, [&] {
    print_answer(answer_of(rows));
    print("\n" + ranking_table(*today.answer, rows).text());
    for (const ChangedRow& row : rows)
      if (!row.answer) print_text(fmt::format("{}: {}\n", row.first().text(), row.row->error), 2);
    print_text("\neach change by itself, the most helpful first: " + question_text(before), 2);
    print_text(today_text(today, before) + chosen_text(asked.base.resolved) + assumed_text(before), 2);
    warn_below(asked.common, warnings_to_act_on(before.warnings, asked.base, before, before));
  });
}

}  // namespace

ordered_json schema_of_change() { return change_columns().schema(); }
ordered_json schema_of_ranking() { return ranking_columns().schema(); }
const ResultSchema kChange("whatif", "whatif --set", with_model<schema_of_change>);
const ResultSchema kRanking("whatif", "whatif --each", with_model<schema_of_ranking>);

int run_changes(const Base& base, const std::vector<std::string>& sets, bool each, const std::string& said,
                const models::AnswerOptions& options, const CommonOptions& common) {
  const Comparison before = ask(base.resolved.scenario, options);
  if (print_unexplained("whatif", before, common)) return 1;
  const Today today = today_of(before, said);
  std::vector<ChangedRow> rows(each ? sets.size() : 1);
  for (std::size_t i = 0; i < sets.size(); ++i)
    rows[each ? i : 0].changes.push_back(understand(sets[i], *before.scenario, &today));
  std::vector<models::Point> points;
  points.reserve(rows.size());
  for (const ChangedRow& row : rows) points.push_back(point_of(row.changes));
  Answers study(
      [&]() -> Answers::Asker {
        return [&](const models::Point& point) {
          const models::Resolved other = changed(base, point).resolved;
          return Changed{ask(other.scenario, of_change(options, before)), other.chosen.options};
        };
      },
      {.threads = common.threads});
  const std::vector<Answers::Row*> answers = study.rows(points);
  if (std::ranges::none_of(answers, &Answers::Row::ok))
    throw InputError((each ? rows.front().first().text() + ": " : "") + answers.front()->error);
  Asked asked{base, before, today, common, each, before.warnings};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].asked = &asked;
    rows[i].row = answers[i];
    if (!answers[i]->ok()) continue;
    rows[i].answer = &today.behind(answers[i]->answer.comparison, rows[i].changes);
    rows[i].gain = throughput_ratio(*today.answer, *rows[i].answer).value;
  }
  if (each) return show_ranking(asked, std::move(rows));
  add_new(asked.warnings, rows.front().changed().warnings);
  return show_change(asked, rows.front());
}

}  // namespace moesim::tools
