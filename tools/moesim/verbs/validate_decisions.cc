#include "tools/moesim/verbs/validate_decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/statistics.h"
#include "base/text.h"
#include "calibration/rows/csv_table.h"
#include "calibration/training/step_constants.h"
#include "calibration/training/training_rows.h"
#include "models/answers/answer.h"
#include "models/answers/invariants.h"
#include "models/answers/sentences.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/progress.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/error_figures.h"
#include "tools/moesim/verbs/left_out.h"

namespace moesim::tools {

namespace {

using calibration::forecast_of;
using calibration::read_tables;
using calibration::SkippedRow;
using calibration::TrainingRow;
using calibration::TrainingTable;

using nlohmann::ordered_json;

// One dispatcher of a decision.
struct Arm {
  TrainingRow row;
  std::string name;  // of the dispatcher, with the library where another arm has the same
  double error = 0;
  bool inside = false;

  bool ran() const { return std::isfinite(row.measured_s); }  // it did not run out of memory
};

struct Case {
  std::string id;
  std::vector<Arm> arms;
  models::Comparison compared;        // an answer for each arm, in their order
  std::vector<std::string> left_out;  // arms that cannot be forecast, with the reason
  std::size_t measured_winner = 0, measured_second = 0;

  const models::Decision& decision() const { return compared.decision; }
  const std::vector<models::Answer>& forecasts() const { return compared.answers; }
  const Arm& measured() const { return arms[measured_winner]; }
  const Arm& recommended() const { return arms[static_cast<std::size_t>(decision().winner)]; }
  bool both_ran() const { return arms[measured_second].ran(); }
  double margin() const { return arms[measured_second].row.measured_s / measured().row.measured_s - 1; }
  // Returns the time lost by following the recommendation; all of it where that runs out of memory.
  double loss() const {
    return recommended().ran() ? recommended().row.measured_s / measured().row.measured_s - 1 : 1;
  }
  bool answered() const { return decision().answered(); }
  bool right() const { return static_cast<std::size_t>(decision().winner) == measured_winner; }
  bool good() const { return loss() <= decision().tolerance; }
  double said_at_most() const { return decision().loss() ? decision().loss()->at_most : 0; }
  bool bound_held() const { return loss() <= said_at_most(); }
  double probability() const { return decision().probability().value_or(0); }
  // Time of the second fastest measured arm over the fastest.
  double measured_ratio() const { return 1 + margin(); }
  models::Estimate forecast_ratio() const {
    return models::ratio(forecasts()[measured_winner], forecasts()[measured_second]);
  }
  bool ratio_inside() const {
    const models::Estimate r = forecast_ratio();
    return r.low <= measured_ratio() && measured_ratio() <= r.high;
  }
};

void name_arms(std::vector<Arm>& arms) {
  const auto plain = [](const Arm& arm) { return arm.row.scenario.dispatchers.front().text(); };
  for (Arm& arm : arms) {
    arm.name = plain(arm);
    const auto same =
        std::count_if(arms.begin(), arms.end(), [&](const Arm& other) { return plain(other) == arm.name; });
    if (same > 1) arm.name += " (" + arm.row.backend + ")";
  }
}

void judge(Case& one) {
  name_arms(one.arms);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < one.arms.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return one.arms[a].row.measured_s < one.arms[b].row.measured_s;
  });
  one.measured_winner = order[0], one.measured_second = order[1];
  for (std::size_t i = 0; i < one.arms.size(); ++i) {
    models::Answer& a = one.compared.answers[i];
    Arm& arm = one.arms[i];
    a.dispatcher = arm.name;
    a.memory.fits = arm.ran() || a.memory.fits;
    const double measured_us = arm.row.measured_s * 1e6;
    if (!arm.ran()) continue;
    arm.error = a.time_us.value / measured_us - 1;
    arm.inside = a.time_us.low <= measured_us && measured_us <= a.time_us.high;
  }
  one.compared.scenario = std::make_shared<const models::Scenario>(one.arms.front().row.scenario);
  models::rank(one.compared.answers, false);
  one.compared.decision = models::decide(one.compared.answers);
  models::check_possible(one.id, models::impossible(one.decision(), one.forecasts().size()));
}

// Returns the decisions in table order; those without two arms that can be forecast join the skipped rows.
std::vector<Case> decisions_of(TrainingTable& table, int draws, const Progress& progress) {
  std::vector<Case> cases;
  const auto of = [&](const std::string& id) -> Case& {
    const auto at = std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.id == id; });
    if (at != cases.end()) return *at;
    return cases.emplace_back(Case{id, {}, {}, {}});
  };
  std::int64_t done = 0;
  for (TrainingRow& row : table.rows) {
    if (progress) progress(done++, static_cast<std::int64_t>(table.rows.size()));
    if (row.decision_id.empty()) continue;
    try {
      models::Answer forecast = forecast_of(row, draws);
      Case& one = of(row.decision_id);
      one.compared.answers.push_back(std::move(forecast));
      one.arms.push_back({std::move(row), "", 0, false});
    } catch (const InputError& error) {
      table.skipped.push_back(
          {row.line, row.source, row.gpu, row.model, error.what(), row.decision_id, row.backend});
    }
  }
  std::erase_if(table.skipped, [](const SkippedRow& row) { return row.decision_id.empty(); });
  for (const SkippedRow& row : table.skipped)
    for (Case& one : cases)
      if (one.id == row.decision_id) one.left_out.push_back(row.backend + ": " + row.reason);
  for (const Case& one : cases)
    if (one.arms.size() < 2)
      for (const Arm& arm : one.arms)
        table.skipped.push_back({arm.row.line, arm.row.source, arm.row.gpu, arm.row.model,
                                 "the only arm of its decision that can be forecast", one.id,
                                 arm.row.backend});
  std::erase_if(cases, [](const Case& one) { return one.arms.size() < 2; });
  std::sort(table.skipped.begin(), table.skipped.end(),
            [](const SkippedRow& a, const SkippedRow& b) { return a.line < b.line; });
  for (Case& one : cases) judge(one);
  return cases;
}

// Frequency with which the forecast's winner was the measured one, by its probability.
struct Bin {
  double from = 0, to = 0, said = 0;
  int right = 0, count = 0;
};

// Each arm in turn as a known run: the recommendation then, and the forecasts of the others.
struct Anchored {
  std::vector<Case> cases;
  double ratio_error = 0;  // median of |forecast / measured - 1| over the unknown arms
  int unexplained = 0;
};

Anchored anchored(const std::vector<Case>& cases) {
  Anchored out;
  std::vector<double> errors;
  for (const Case& given : cases)
    for (std::size_t known = 0; known < given.arms.size(); ++known) {
      if (!given.arms[known].ran()) continue;
      Case& one = out.cases.emplace_back(given);
      one.id += " | " + given.arms[known].name;
      const double known_us = given.arms[known].row.measured_s * 1e6;
      const models::Anchor anchor =
          models::anchor_of(given.compared, {{given.arms[known].name, known_us}}, false);
      if (!anchor.explained) {
        ++out.unexplained;
        one.compared.decision.verdict = models::Decision::Verdict::kOpen;
        continue;
      }
      for (std::size_t i = 0; i < one.arms.size(); ++i) {
        models::Answer& a = one.compared.answers[i];
        models::anchor_answer(a, anchor, i == known ? 0 : -1);
        if (!one.arms[i].ran()) continue;
        const double measured_us = one.arms[i].row.measured_s * 1e6;
        one.arms[i].error = a.time_us.value / measured_us - 1;
        one.arms[i].inside = a.time_us.low <= measured_us && measured_us <= a.time_us.high;
        if (i != known) errors.push_back(std::abs(one.arms[i].error));
      }
      one.compared.decision = models::decide(one.compared.answers);
    }
  out.ratio_error = median(std::move(errors));
  return out;
}

struct Totals {
  int answered = 0, right = 0, fastest = 0, ratios = 0, ratios_inside = 0, steps_inside = 0;
  int good = 0, bounds_held = 0;             // of those answered; of all
  double mean_regret = 0, worst_regret = 0;  // of those answered
  double mean_loss = 0;                      // the recommendation followed even where it is open
  double step_error = 0, rank_correlation = 0;
  std::size_t steps = 0;
  std::array<Bin, 5> bins{{{0, 0.5}, {0.5, 0.7}, {0.7, 0.9}, {0.9, 0.98}, {0.98, 1.01}}};
};

Totals totals_of(const std::vector<Case>& cases) {
  Totals t;
  std::vector<double> errors, measured, forecast;
  for (const Case& one : cases) {
    t.answered += one.answered();
    t.right += one.answered() && one.right();
    t.good += one.answered() && one.good();
    t.fastest += one.right();
    t.bounds_held += one.bound_held();
    t.ratios += one.both_ran();
    t.ratios_inside += one.both_ran() && one.ratio_inside();
    t.mean_loss += one.loss() / static_cast<double>(cases.size());
    if (one.answered()) {
      t.mean_regret += one.loss();
      t.worst_regret = std::max(t.worst_regret, one.loss());
    }
    for (Bin& bin : t.bins)
      if (bin.from <= one.probability() && one.probability() < bin.to) {
        ++bin.count;
        bin.said += one.probability();
        bin.right += one.right();
      }
    for (std::size_t i = 0; i < one.arms.size(); ++i) {
      if (!one.arms[i].ran()) continue;
      errors.push_back(std::abs(one.arms[i].error));
      t.steps_inside += one.arms[i].inside;
      if (i == 0 || !one.arms[0].ran()) continue;
      measured.push_back(one.arms[i].row.measured_s / one.arms[0].row.measured_s);
      forecast.push_back(one.forecasts()[i].time_us.value / one.forecasts()[0].time_us.value);
    }
  }
  t.steps = errors.size();
  if (t.answered > 0) t.mean_regret /= t.answered;
  t.step_error = median(std::move(errors));
  t.rank_correlation = rank_correlation(measured, forecast);
  for (Bin& bin : t.bins)
    if (bin.count > 0) bin.said /= bin.count;
  return t;
}

ordered_json case_json(const Case& one) {
  ordered_json arms = ordered_json::array();
  for (std::size_t i = 0; i < one.arms.size(); ++i) {
    const Arm& arm = one.arms[i];
    const models::Estimate& us = one.forecasts()[i].time_us;
    arms.push_back({{"line", arm.row.line},
                    {"dispatcher", arm.name},
                    {"backend", arm.row.backend},
                    {"measured_us", arm.ran() ? ordered_json(arm.row.measured_s * 1e6) : ordered_json()},
                    {"forecast_us", estimate_json(us)},
                    {"error", arm.ran() ? ordered_json(arm.error) : ordered_json()},
                    {"inside", arm.inside},
                    {"breakdown_us", breakdown_json(one.forecasts()[i].breakdown_us)},
                    {"unmeasured", one.forecasts()[i].unmeasured_parts()},
                    {"outside_domain", one.forecasts()[i].outside_domain},
                    {"assumptions", arm.row.assumptions}});
  }
  const TrainingRow& row = one.arms.front().row;
  ordered_json result{
      {"id", one.id},
      {"gpu", row.gpu},
      {"model", row.model},
      {"grade", row.grade},
      {"measured_winner", one.measured().name},
      {"measured_margin", or_null(one.both_ran() ? std::optional(one.margin()) : std::nullopt)},
      {"forecast_winner", one.recommended().name},
      {"recommended", one.recommended().name},
      {"probability", or_null(one.decision().probability())},
      {"verdict", name_of(one.decision().verdict)},
      {"said_loss_at_most", one.said_at_most()},
      {"loss", one.loss()},
      {"regret", one.loss()},
      {"measured_ratio", or_null(one.both_ran() ? std::optional(one.measured_ratio()) : std::nullopt)},
      {"forecast_ratio", estimate_json(one.forecast_ratio())},
      {"ratio_inside", one.ratio_inside()},
      {"because", models::because(one.compared)},
      {"arms", std::move(arms)},
      {"left_out", one.left_out}};
  return result;
}

ordered_json result_of(const CommonOptions& common, const std::vector<Case>& cases, const Totals& t,
                       const std::vector<SkippedRow>& skipped, std::optional<double> ratio_error,
                       const DecisionValidation& options, const std::vector<calibration::Refit>& refits) {
  ordered_json inputs = describe_inputs(common);
  ordered_json result = envelope("validate", inputs, {});
  const auto share = [](int part, std::size_t of) {
    return of > 0 ? ordered_json(part / static_cast<double>(of)) : ordered_json(nullptr);
  };
  result["decisions"] = ordered_json::array();
  for (const Case& one : cases) result["decisions"].push_back(case_json(one));
  result["right_share"] = share(t.right, static_cast<std::size_t>(t.answered));
  result["abstained_share"] = share(static_cast<int>(cases.size()) - t.answered, cases.size());
  result["mean_regret"] = t.mean_regret;
  result["worst_regret"] = t.worst_regret;
  result["mean_regret_of_all"] = t.mean_loss;
  result["answered_share"] = share(t.answered, cases.size());
  result["good_share"] = share(t.good, static_cast<std::size_t>(t.answered));
  result["bound_held_share"] = share(t.bounds_held, cases.size());
  result["mean_loss"] = t.mean_loss;
  result["fastest_share"] = share(t.fastest, cases.size());
  if (ratio_error) result["ratio_median_abs_error"] = *ratio_error;
  result["median_abs_error"] = t.step_error;
  result["coverage"] = share(t.steps_inside, t.steps);
  result["ratio_coverage"] = share(t.ratios_inside, static_cast<std::size_t>(t.ratios));
  result["rank_correlation"] = t.rank_correlation;
  result["probability_bins"] = ordered_json::array();
  for (const Bin& bin : t.bins)
    if (bin.count > 0)
      result["probability_bins"].push_back(
          {{"said", bin.said}, {"right", bin.right / static_cast<double>(bin.count)}, {"count", bin.count}});
  if (options.leave_out) result["left_out"] = left_out_json(refits);
  result["skipped"] = ordered_json::array();
  for (const SkippedRow& s : skipped)
    result["skipped"].push_back({{"line", s.line},
                                 {"id", s.decision_id},
                                 {"backend", s.backend},
                                 {"model", s.model},
                                 {"reason", s.reason}});
  return result;
}

Table decision_table(const std::vector<Case>& cases) {
  using Align = Table::Align;
  Table table({{"decision", Align::kLeft},
               {"measured winner", Align::kLeft},
               {"margin"},
               {"recommended", Align::kLeft},
               {"P"},
               {"verdict", Align::kLeft},
               {"at most"},
               {"loss"},
               {"ratio"},
               {"forecast"},
               {"low"},
               {"high"}});
  for (const Case& one : cases) {
    const models::Estimate r = one.forecast_ratio();
    table.row({one.id, one.measured().name, one.both_ran() ? percent(one.margin()).substr(1) : "no memory",
               one.recommended().name, fmt::format("{:.2f}", one.probability()),
               std::string(name_of(one.decision().verdict)), percent(one.said_at_most()).substr(1),
               percent(one.loss()).substr(1),
               one.both_ran() ? fmt::format("{:.3f}", one.measured_ratio()) : "-",
               fmt::format("{:.3f}", r.value), fmt::format("{:.3f}", r.low), fmt::format("{:.3f}", r.high)});
  }
  return table;
}

std::string summary_of(const std::vector<Case>& cases, const Totals& t,
                       const std::vector<SkippedRow>& skipped) {
  std::string text = "\n";
  for (const Bin& bin : t.bins)
    if (bin.count > 0)
      text += fmt::format("said {:.2f} in {}: right in {}\n", bin.said, bin.count, bin.right);
  for (const Case& one : cases)
    for (const std::string& arm : one.left_out) text += fmt::format("{}: without {}\n", one.id, arm);
  std::vector<std::string> lost;
  for (const SkippedRow& row : skipped)
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return c.id == row.decision_id; }) &&
        std::find(lost.begin(), lost.end(), row.decision_id) == lost.end()) {
      lost.push_back(row.decision_id);
      text += fmt::format("skipped {}: {}\n", row.decision_id, row.reason);
    }
  const auto n = cases.size();
  text += fmt::format(
      "\n{} decisions: answered {}, of which within the tolerance {} and the fastest {}; open {}\n"
      "recommended and the fastest in {}; the loss stays within what was said in {}\n"
      "loss of those answered: mean {}, worst {}; following the recommendation everywhere: mean {}\n"
      "ratio of the two fastest inside the 90 % interval in {} of {}; rank correlation of the ratios {:.2f}\n"
      "{} steps, median absolute error {}; measured inside the 90 % interval in {} of {}\n",
      n, t.answered, t.good, t.right, n - static_cast<std::size_t>(t.answered), t.fastest, t.bounds_held,
      percent(t.mean_regret).substr(1), percent(t.worst_regret).substr(1), percent(t.mean_loss).substr(1),
      t.ratios_inside, t.ratios, t.rank_correlation, t.steps, percent(t.step_error).substr(1), t.steps_inside,
      t.steps);
  return text;
}

}  // namespace

int validate_decisions(const DecisionValidation& options, const CommonOptions& common) {
  for (const std::string& path : options.tables)
    if (!calibration::CsvTable::parse(read_file(path), path).has("decision_id"))
      throw InputError(
          SourcePlace{path, 1, 0},
          "found no column 'decision_id', expected one: rows that have the same are one decision");
  TrainingTable table = read_tables(options.tables, calibration::RowsWith::kTimeOrLimit);
  std::vector<calibration::Refit> refits;
  if (options.leave_out) {
    ProgressLine line(common);
    refits = leave_out_sources(table.rows, line.teller());
  }
  std::optional<double> ratio_error;
  int unexplained = 0;
  std::vector<Case> cases = [&] {
    ProgressLine line(common);
    return decisions_of(table,
                        options.anchored ? std::max(options.draws, models::kAnchorDraws) : options.draws,
                        line.teller());
  }();
  if (cases.empty())
    throw InputError(fmt::format(
        "{}: found no decision of which two rows can be forecast ({} skipped{}), expected at least one",
        options.tables.front(), table.skipped.size(),
        table.skipped.empty() ? "" : ", the first: " + table.skipped.front().reason));
  if (options.anchored) {
    Anchored known = anchored(cases);
    cases = std::move(known.cases);
    ratio_error = known.ratio_error;
    unexplained = known.unexplained;
  }
  const Totals totals = totals_of(cases);
  const bool printed =
      wants_result(common) &&
      publish(result_of(common, cases, totals, table.skipped, ratio_error, options, refits), common);
  if (!printed) {
    const Table shown = decision_table(cases);
    if (common.format == Format::kCsv)
      print(shown.csv());
    else
      print(shown.text() + summary_of(cases, totals, table.skipped) + left_out_text(refits));
    if (ratio_error && common.format == Format::kTable)
      print(fmt::format(
          "each arm known in turn: the others are off by {} in the median; {} runs are not explained\n",
          percent(*ratio_error).substr(1), unexplained));
  }
  if (options.max_error <= 0 || totals.mean_regret <= options.max_error) return 0;
  warn(common, fmt::format("check failed: the mean regret is {}, more than --max-error {}",
                           percent(totals.mean_regret).substr(1), percent(options.max_error).substr(1)));
  return 1;
}

}  // namespace moesim::tools
