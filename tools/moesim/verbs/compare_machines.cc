#include "tools/moesim/verbs/compare_machines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/hardware/cluster.h"
#include "models/hardware/ownership.h"
#include "models/study/study.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/plan_question.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

using Answers = models::Study<Comparison>;

struct Machine {
  std::string cluster;  // as it was named
  const Answers::Row* row;

  bool ok() const { return row->ok(); }
  const Comparison& compared() const { return row->answer; }
  const Answer& best() const { return *compared().winner(); }
  bool holds() const { return ok() && best().memory.fits; }
  double seconds_per_token() const { return best().seconds() / best().tokens; }
  models::PriceTable prices() const { return PlanQuestion::prices(*compared().scenario); }
  std::string currency() const { return models::currency_of(prices(), compared().scenario->ownership); }
  std::optional<double> per_million_tokens() const {
    const models::Scenario& s = *compared().scenario;
    const models::PriceTable prices = this->prices();
    if (!models::has_price(prices, s.ownership, *s.cluster)) return std::nullopt;
    return best().per_million_tokens(
        models::hour_cost(prices, s.ownership, *s.cluster, best().gpus).of(best().seconds()));
  }
};

// The row of a file.
Columns<Machine> row_columns() {
  const auto size = [](std::int64_t models::Parallel::*of) {
    return [of](const Machine& m) { return m.compared().scenario->parallel.*of; };
  };
  using P = models::Parallel;
  Columns<Machine> found{
      {"cluster", [](const Machine& m) { return m.compared().scenario->cluster->name; }},
      {"gpus", [](const Machine& m) { return m.best().gpus; }},
      {"tp", size(&P::tp)},
      {"pp", size(&P::pp)},
      {"ep", size(&P::ep)},
      {"dispatcher", [](const Machine& m) { return m.best().dispatcher; }},
      {"verdict", [](const Machine& m) { return name_of(m.compared().decision.verdict); }}};
  found.add(figures().some({"time_us", "tokens_per_s_per_gpu", "mfu"}), &Machine::best)
      .add({{"currency", &Machine::currency}, {"cost_per_million_tokens", &Machine::per_million_tokens}})
      .add(figures().some({"fits"}), &Machine::best);
  return Columns<Machine>().either(
      &Machine::ok, found,
      {{"cluster", &Machine::cluster}, {"error", [](const Machine& m) { return m.row->error; }}});
}

// In one unit; plan, MFU and verdict give way on a narrow terminal.
Table machine_table(const std::vector<Machine>& machines) {
  using M = const Machine&;
  double longest = 0;
  for (M m : machines)
    if (m.ok()) longest = std::max(longest, m.best().time_us.high);
  const TimeUnit unit = TimeUnit::of(longest);
  const auto plan = [](M m) {
    const models::Parallel& p = m.compared().scenario->parallel;
    return fmt::format("TP {} PP {} EP {}", p.tp, p.pp, p.ep);
  };
  Columns<Machine> columns{
      {"", [](M m) { return m.compared().scenario->cluster->name; }, "", "cluster"},
      {"", [](M m) { return m.best().dispatcher; }, "", "run"},
      {"", [](M m) { return m.best().time_us.value; }, "", time_head(unit.head("time"), unit)},
      {"", [unit](M m) { return interval(m.best().interval(), unit); }, "", "90 % interval"},
      {"",
       &Machine::per_million_tokens,
       "",
       {machines.front().currency() + " per M tokens",
        [](double price) { return fmt::format("{:.3g}", price); }}},
      {"", [](M m) { return m.best().memory.fits; }, "", "fits"},
      {"", plan, "", "plan"}};
  columns.add(figures().some({"mfu"}), &Machine::best)
      .add({{"", [](M m) { return name_of(m.compared().decision.verdict); }, "", "verdict"}});
  std::vector<std::reference_wrapper<const Machine>> shown;
  for (M m : machines)
    if (m.ok()) shown.emplace_back(m);
  return people_table(columns, shown, {"plan", "MFU", "verdict"});
}

// The question on the fastest machine, a line for each other one, and what was assumed on the fastest.
std::string machine_lines(const std::vector<Machine>& machines) {
  std::string text = "\n" + question_text(machines.front().compared());
  for (const Machine& m : machines)
    text += m.ok() ? (&m == &machines.front() ? "" : machine_text(*m.compared().scenario) + "\n")
                   : fmt::format("{}: {}\n", m.cluster, m.row->error);
  return text + assumed_text(machines.front().compared());
}

// `machines` are ordered: those that hold the job, the fastest first.
std::string answer_of(const std::vector<Machine>& machines) {
  const Machine& fastest = machines.front();
  std::string text =
      fmt::format("{} is the fastest of {} machines: {} with {}", fastest.cluster, machines.size(),
                  format_us(fastest.best().time_us.value), fastest.best().dispatcher);
  const Machine* cheapest = nullptr;
  for (const Machine& m : machines)
    if (m.holds() == fastest.holds() && m.ok() && m.per_million_tokens() &&
        (!cheapest || *m.per_million_tokens() < *cheapest->per_million_tokens()))
      cheapest = &m;
  if (cheapest)
    text += fmt::format("; {} costs least, {:.3g} {} per million tokens", cheapest->cluster,
                        *cheapest->per_million_tokens(), cheapest->currency());
  text += ".";
  if (!fastest.holds()) text += " It does not fit into the memory of any of them.";
  if (machines.size() > 1 && machines[1].holds() == fastest.holds() && machines[1].ok()) {
    const Machine& second = machines[1];
    const double more = second.seconds_per_token() / fastest.seconds_per_token() - 1;
    const bool sure = fastest.best().interval().high / fastest.best().tokens <
                      second.best().interval().low / second.best().tokens;
    text += fmt::format(" {} takes {:.0f} % longer{}.", second.cluster, 100 * more,
                        sure ? "" : "; their intervals overlap, so the order may be another");
  }
  std::vector<std::string> small;
  for (const Machine& m : machines)
    if (fastest.holds() && m.ok() && !m.holds()) small.push_back(m.cluster);
  if (!small.empty()) text += fmt::format(" It does not fit into the memory of {}.", fmt::join(small, ", "));
  return text;
}

using Machines = std::vector<Machine>;

// A comparison, or an error.
ordered_json machine_json(const Machine& m, const CommonOptions& common) {
  ordered_json one =
      m.ok() ? comparison_json(m.compared(), Detail::kNone, common) : ordered_json{{"error", m.row->error}};
  one["cluster_named"] = m.cluster;
  if (m.ok() && m.per_million_tokens())
    one["cost_per_million_tokens"] = {{"value", *m.per_million_tokens()}, {"currency", m.currency()}};
  return one;
}

Columns<Machines> machines_columns(const CommonOptions& common) {
  const ordered_json either{{"required", {"cluster_named"}},
                            {"if", {{"not", {{"required", {"error"}}}}}},
                            {"then", {{"$ref", "compare.schema.json"}}}};
  return {
      {"answer", answer_of},
      {"machines",
       [&](const Machines& machines) {
         std::vector<ordered_json> all;
         for (const Machine& m : machines) all.push_back(machine_json(m, common));
         return all;
       },
       {"those that hold the job first, the fastest first; then those with an error", {{"items", either}}}}};
}

const ResultSchema kSchema("compare-machines", "compare --cluster A,B,...",
                           [] { return machines_columns({}).schema(); });

}  // namespace

std::vector<std::string> several_clusters(const std::string& said) {
  std::vector<std::string> names;
  if (said.find(',') == std::string::npos || trim(said).starts_with('{')) return names;
  for (const std::string_view name : split(said, ',')) names.emplace_back(trim(name));
  return names;
}

int compare_machines(const QuestionOptions& question, const std::vector<std::string>& clusters,
                     const models::AnswerOptions& options, const CommonOptions& common) {
  const ScenarioPath path = find_path("cluster");
  std::vector<models::Point> points;
  points.reserve(clusters.size());
  for (const std::string& cluster : clusters)
    points.push_back(models::Point::of(path, {cluster, cluster, 0}));
  Answers study([&]() -> Answers::Asker {
    return [&](const models::Point& point) {
      QuestionOptions one = question;
      one.say(path.path, point.values.front().text);
      models::Scenario s = settle(one.question(common), common).scenario;
      PlanQuestion::take_listed_rent(s);
      Comparison compared = ask(std::move(s), options);
      if (!compared.winner()) throw InputError("no dispatcher has a forecast");
      return compared;
    };
  });
  const std::vector<Answers::Row*> rows = study.rows(points);
  std::vector<Machine> machines;
  for (std::size_t i = 0; i < rows.size(); ++i) machines.push_back({clusters[i], rows[i]});
  std::ranges::stable_sort(machines, [](const Machine& a, const Machine& b) {
    if (a.ok() != b.ok()) return a.ok();
    if (a.holds() != b.holds()) return a.holds();
    return a.ok() && a.seconds_per_token() < b.seconds_per_token();
  });
  if (!machines.front().ok()) throw InputError(machines.front().row->error);
  if (common.format == Format::kJson) {
    print_result("compare", describe_inputs(common), machines_columns(common).json(machines));
    return 0;
  }
  if (common.format == Format::kCsv) {
    ordered_json list = ordered_json::array();
    for (const Machine& m : machines) list.push_back(row_columns().json(m));
    print(csv_of(list));
    return 0;
  }
  print_answer(answer_of(machines));
  print("\n" + machine_table(machines).text());
  print_text(machine_lines(machines), 2);
  return 0;
}

}  // namespace moesim::tools
