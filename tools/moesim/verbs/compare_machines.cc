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
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/plan_question.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

struct Machine {
  std::string cluster;  // as it was named
  std::optional<models::Comparison> compared;
  std::string error;

  const models::Answer& best() const { return *compared->winner(); }
  bool holds() const { return error.empty() && best().memory.fits; }
  double seconds_per_token() const { return best().seconds() / best().tokens; }
  models::PriceTable prices() const { return PlanQuestion::prices(*compared->scenario); }
  std::string currency() const { return models::currency_of(prices(), compared->scenario->ownership); }
  std::optional<double> per_million_tokens() const {
    const models::Scenario& s = *compared->scenario;
    const models::PriceTable prices = this->prices();
    if (!models::has_price(prices, s.ownership, *s.cluster)) return std::nullopt;
    return best().per_million_tokens(
        models::hour_cost(prices, s.ownership, *s.cluster, best().gpus).of(best().seconds()));
  }
};

Machine asked(QuestionOptions question, const std::string& cluster, const models::AnswerOptions& options,
              const CommonOptions& common) {
  Machine m{cluster, std::nullopt, ""};
  question.say("cluster", cluster);
  try {
    models::Scenario s = settle(question.question(common), common).scenario;
    PlanQuestion::take_listed_rent(s);
    m.compared = ask(std::move(s), options);
    if (!m.compared->winner()) m.error = "no dispatcher has a forecast";
  } catch (const InputError& error) {
    m.error = error.what();
  }
  return m;
}

Table machine_table(const std::vector<Machine>& machines) {
  using Align = Table::Align;
  Table table({{"cluster", Align::kLeft},
               {"GPUs"},
               {"TP"},
               {"PP"},
               {"EP"},
               {"run", Align::kLeft},
               {"verdict", Align::kLeft},
               {"time"},
               {"low"},
               {"high"},
               {"tokens/s/GPU"},
               {"MFU"},
               {machines.front().currency() + " per M tokens"},
               {"fits"}});
  for (const Machine& m : machines) {
    if (!m.error.empty()) continue;
    const models::Answer& a = m.best();
    const models::Parallel& p = m.compared->scenario->parallel;
    const auto price = m.per_million_tokens();
    table.row({m.compared->scenario->cluster->name, fmt::format("{}", a.gpus), fmt::format("{}", p.tp),
               fmt::format("{}", p.pp), fmt::format("{}", p.ep), a.dispatcher,
               std::string(name_of(m.compared->decision.verdict)), format_us(a.time_us.value),
               format_us(a.time_us.low), format_us(a.time_us.high),
               fmt::format("{:.0f}", a.tokens_per_s_per_gpu()), fmt::format("{:.0f} %", 100 * a.mfu),
               price ? fmt::format("{:.3g}", *price) : "-", a.memory.fits ? "yes" : "no"});
  }
  return table;
}

// In one unit; plan, MFU and verdict give way on a narrow terminal.
Table people_machine_table(const std::vector<Machine>& machines) {
  using Align = Table::Align;
  double longest = 0;
  for (const Machine& m : machines)
    if (m.error.empty()) longest = std::max(longest, m.best().time_us.high);
  const TimeUnit unit = TimeUnit::of(longest);
  Table table({{"cluster", Align::kLeft},
               {"run", Align::kLeft},
               {unit.head("time")},
               {"90 % interval"},
               {machines.front().currency() + " per M tokens"},
               {"fits", Align::kLeft},
               {"plan", Align::kLeft, true},
               {"MFU", Align::kRight, true},
               {"verdict", Align::kLeft, true}});
  for (const Machine& m : machines) {
    if (!m.error.empty()) continue;
    const models::Answer& a = m.best();
    const models::Parallel& p = m.compared->scenario->parallel;
    const auto price = m.per_million_tokens();
    table.row({m.compared->scenario->cluster->name, a.dispatcher, unit.number(a.time_us.value),
               fmt::format("{} to {}", unit.number(a.time_us.low), unit.number(a.time_us.high)),
               price ? fmt::format("{:.3g}", *price) : "-", a.memory.fits ? "yes" : "no",
               fmt::format("TP {} PP {} EP {}", p.tp, p.pp, p.ep), fmt::format("{:.0f} %", 100 * a.mfu),
               std::string(name_of(m.compared->decision.verdict))});
  }
  return table;
}

// The question on the fastest machine, a line for each other one, and what was assumed on the fastest.
std::string machine_lines(const std::vector<Machine>& machines) {
  std::string text = "\n" + question_text(*machines.front().compared);
  for (const Machine& m : machines)
    text += m.error.empty() ? (&m == &machines.front() ? "" : machine_text(*m.compared->scenario) + "\n")
                            : fmt::format("{}: {}\n", m.cluster, m.error);
  return text + assumed_text(*machines.front().compared);
}

// `machines` are ordered: those that hold the job, the fastest first.
std::string answer_of(const std::vector<Machine>& machines) {
  const Machine& fastest = machines.front();
  std::string text =
      fmt::format("{} is the fastest of {} machines: {} with {}", fastest.cluster, machines.size(),
                  format_us(fastest.best().time_us.value), fastest.best().dispatcher);
  const Machine* cheapest = nullptr;
  for (const Machine& m : machines)
    if (m.holds() == fastest.holds() && m.error.empty() && m.per_million_tokens() &&
        (!cheapest || *m.per_million_tokens() < *cheapest->per_million_tokens()))
      cheapest = &m;
  if (cheapest)
    text += fmt::format("; {} costs least, {:.3g} {} per million tokens", cheapest->cluster,
                        *cheapest->per_million_tokens(), cheapest->currency());
  text += ".";
  if (!fastest.holds()) text += " It does not fit into the memory of any of them.";
  if (machines.size() > 1 && machines[1].holds() == fastest.holds() && machines[1].error.empty()) {
    const Machine& second = machines[1];
    const double more = second.seconds_per_token() / fastest.seconds_per_token() - 1;
    const bool sure = fastest.best().time_us.high / fastest.best().tokens <
                      second.best().time_us.low / second.best().tokens;
    text += fmt::format(" {} takes {:.0f} % longer{}.", second.cluster, 100 * more,
                        sure ? "" : "; their intervals overlap, so the order may be another");
  }
  std::vector<std::string> small;
  for (const Machine& m : machines)
    if (fastest.holds() && m.error.empty() && !m.holds()) small.push_back(m.cluster);
  if (!small.empty()) text += fmt::format(" It does not fit into the memory of {}.", fmt::join(small, ", "));
  return text;
}

}  // namespace

std::vector<std::string> several_clusters(const std::string& said) {
  std::vector<std::string> names;
  if (said.find(',') == std::string::npos || trim(said).starts_with('{')) return names;
  for (const std::string_view name : split(said, ',')) names.emplace_back(trim(name));
  return names;
}

int compare_machines(const QuestionOptions& question, const std::vector<std::string>& clusters,
                     const models::AnswerOptions& options, const CommonOptions& common) {
  std::vector<Machine> machines;
  machines.reserve(clusters.size());
  for (const std::string& cluster : clusters) machines.push_back(asked(question, cluster, options, common));
  std::ranges::stable_sort(machines, [](const Machine& a, const Machine& b) {
    if (a.error.empty() != b.error.empty()) return a.error.empty();
    if (a.holds() != b.holds()) return a.holds();
    return a.error.empty() && a.seconds_per_token() < b.seconds_per_token();
  });
  if (!machines.front().error.empty()) throw InputError(machines.front().error);
  if (common.format == Format::kJson) {
    ordered_json result = envelope("compare", describe_inputs(common), {});
    result["answer"] = answer_of(machines);
    result["machines"] = ordered_json::array();
    for (const Machine& m : machines) {
      ordered_json one = m.error.empty() ? comparison_json(*m.compared, Detail::kNone, common)
                                         : ordered_json{{"error", m.error}};
      one["cluster_named"] = m.cluster;
      if (m.error.empty() && m.per_million_tokens())
        one["cost_per_million_tokens"] = {{"value", *m.per_million_tokens()}, {"currency", m.currency()}};
      result["machines"].push_back(std::move(one));
    }
    print_json(result);
    return 0;
  }
  if (common.format == Format::kCsv) {
    print(machine_table(machines).csv());
    return 0;
  }
  print_answer(answer_of(machines));
  print("\n" + people_machine_table(machines).text());
  print_text(machine_lines(machines), 2);
  return 0;
}

}  // namespace moesim::tools
