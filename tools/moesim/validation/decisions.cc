// Measured decisions between dispatchers against forecast ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/statistics.h"
#include "models/answers/answer.h"
#include "models/answers/invariants.h"
#include "models/answers/sentences.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/validation/scores.h"
#include "tools/moesim/validation/validation.h"

namespace moesim::tools {

namespace {

using fmt::format;
using models::Answer;
using models::Decision;
using nlohmann::ordered_json;

// One dispatcher of a decision.
struct Arm {
  PublishedRow row;
  std::string name = {};  // of the dispatcher, with the library where another arm has the same
  double error = 0;
  bool inside = false;

  double us() const { return row.measured_s * 1e6; }
  bool ran() const { return std::isfinite(row.measured_s); }  // it did not run out of memory
};

struct Case {
  std::string id;
  std::vector<Arm> arms = {};
  models::Comparison compared = {};        // an answer for each arm, in their order
  std::vector<std::string> left_out = {};  // arms that cannot be forecast, with the reason
  std::size_t fastest = 0, second = 0;     // as measured

  const Decision& decision() const { return compared.decision; }
  const std::vector<Answer>& forecasts() const { return compared.answers; }
  const Arm& recommended() const { return arms[static_cast<std::size_t>(decision().winner)]; }
  double over_fastest(const Arm& arm) const { return arm.row.measured_s / arms[fastest].row.measured_s; }
  bool both_ran() const { return arms[second].ran(); }
  // Time of the second fastest measured arm over the fastest, less 1.
  double margin() const { return over_fastest(arms[second]) - 1; }
  models::Estimate forecast_ratio() const { return models::ratio(forecasts()[fastest], forecasts()[second]); }
  bool ratio_inside() const {
    const models::Estimate r = forecast_ratio();
    return r.low <= 1 + margin() && 1 + margin() <= r.high;
  }
  // Time lost by following the recommendation; all of it where that runs out of memory.
  double loss() const { return recommended().ran() ? over_fastest(recommended()) - 1 : 1; }
  double said_at_most() const { return decision().loss() ? decision().loss()->at_most : 0; }
  bool right() const { return static_cast<std::size_t>(decision().winner) == fastest; }
  double probability() const { return decision().probability().value_or(0); }
};

void compare_arm(Arm& arm, const Answer& forecast) {
  if (!arm.ran()) return;
  arm.error = forecast.time_us.value / arm.us() - 1;
  arm.inside = inside(forecast.time_us, arm.row.measured_s);
}

void judge(Case& one) {
  const auto plain = [](const Arm& arm) { return arm.row.scenario.dispatchers.front().text(); };
  std::vector<std::size_t> order;
  for (Arm& arm : one.arms) {
    order.push_back(order.size());
    arm.name = plain(arm);
    if (std::ranges::count(one.arms, arm.name, plain) > 1) arm.name += " (" + arm.row.backend + ")";
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return one.arms[i].row.measured_s; });
  one.fastest = order[0], one.second = order[1];
  for (std::size_t i = 0; i < one.arms.size(); ++i) {
    Answer& forecast = one.compared.answers[i];
    forecast.dispatcher = one.arms[i].name;
    forecast.memory.fits = one.arms[i].ran() || forecast.memory.fits;
    compare_arm(one.arms[i], forecast);
  }
  one.compared.scenario = std::make_shared<const models::Scenario>(one.arms.front().row.scenario);
  models::rank(one.compared.answers, false);
  one.compared.decision = models::decide(one.compared.answers);
  models::check_possible(one.id, models::impossible(one.decision(), one.forecasts().size()));
}

// Returns the decisions in table order; those without two arms that can be forecast join the skipped rows.
std::vector<Case> decisions_of(PublishedTable& table, int draws, const CommonOptions& common) {
  std::vector<Case> cases;
  std::erase_if(table.rows, [](const PublishedRow& row) { return row.decision_id.empty(); });
  each_row(table, common, [&](PublishedRow& row) {
    Answer forecast = forecast_of(row, draws);
    auto one = std::ranges::find(cases, row.decision_id, &Case::id);
    if (one == cases.end()) one = cases.insert(one, Case{row.decision_id});
    one->compared.answers.push_back(std::move(forecast));
    one->arms.push_back({std::move(row)});
  });
  // A line that has no columns may be of any decision.
  std::erase_if(table.skipped,
                [](const SkippedRow& row) { return row.decision_id.empty() && !row.gpu.empty(); });
  for (const SkippedRow& row : table.skipped)
    if (const auto one = std::ranges::find(cases, row.decision_id, &Case::id); one != cases.end())
      one->left_out.push_back(row.backend + ": " + row.reason);
  for (const Case& one : cases)
    if (one.arms.size() < 2)
      table.skipped.push_back({one.arms.front().row, "the only arm of its decision that can be forecast"});
  std::erase_if(cases, [](const Case& one) { return one.arms.size() < 2; });
  std::ranges::sort(table.skipped, {}, &SkippedRow::line);
  for (Case& one : cases) judge(one);
  return cases;
}

// Each arm in turn as a known run: the recommendation then, and the forecasts of the others.
struct Anchored {
  std::vector<Case> cases = {};
  Score others = {};  // forecasts of the unknown arms
  int unexplained = 0;
};

Anchored anchored(const std::vector<Case>& cases) {
  Anchored out;
  for (const Case& given : cases)
    for (std::size_t known = 0; known < given.arms.size(); ++known) {
      if (!given.arms[known].ran()) continue;
      Case& one = out.cases.emplace_back(given);
      one.id += " | " + given.arms[known].name;
      const models::Anchor anchor =
          models::anchor_of(given.compared, {{given.arms[known].name, given.arms[known].us()}}, false);
      if (!anchor.explained) {
        ++out.unexplained;
        one.compared.decision.verdict = Decision::Verdict::kOpen;
        continue;
      }
      for (std::size_t i = 0; i < one.arms.size(); ++i) {
        models::anchor_answer(one.compared.answers[i], anchor, i == known ? 0 : -1);
        compare_arm(one.arms[i], one.forecasts()[i]);
        if (i != known && one.arms[i].ran()) out.others.add(one.arms[i].error, one.arms[i].inside);
      }
      one.compared.decision = models::decide(one.compared.answers);
    }
  return out;
}

// Frequency with which the forecast's winner was the measured one, by its probability.
struct Bin {
  double from = 0, to = 0, said = 0;
  int right = 0, count = 0;
};

struct Totals {
  int answered = 0, right = 0, good = 0;  // right and good: of those answered
  int fastest = 0, bounds_held = 0;       // of all
  int ratios = 0, ratios_inside = 0;
  double mean_regret = 0, worst_regret = 0;  // of those answered
  double mean_loss = 0;                      // the recommendation followed even where it is open
  double rank_correlation = 0;
  Score steps = {};
  std::array<Bin, 5> bins{{{0, 0.5}, {0.5, 0.7}, {0.7, 0.9}, {0.9, 0.98}, {0.98, 1.01}}};
};

Totals totals_of(const std::vector<Case>& cases) {
  Totals t;
  std::vector<double> measured, forecast;  // over the first arm
  for (const Case& one : cases) {
    const double loss = one.loss();
    t.fastest += one.right();
    t.bounds_held += loss <= one.said_at_most();
    t.ratios += one.both_ran();
    t.ratios_inside += one.both_ran() && one.ratio_inside();
    t.mean_loss += loss / static_cast<double>(cases.size());
    if (one.decision().answered()) {
      ++t.answered;
      t.right += one.right();
      t.good += loss <= one.decision().tolerance;
      t.mean_regret += loss;
      t.worst_regret = std::max(t.worst_regret, loss);
    }
    for (Bin& bin : t.bins)
      if (bin.from <= one.probability() && one.probability() < bin.to) {
        ++bin.count;
        bin.said += one.probability();
        bin.right += one.right();
      }
    for (std::size_t i = 0; i < one.arms.size(); ++i) {
      if (!one.arms[i].ran()) continue;
      t.steps.add(one.arms[i].error, one.arms[i].inside);
      if (i == 0 || !one.arms[0].ran()) continue;
      measured.push_back(one.arms[i].row.measured_s / one.arms[0].row.measured_s);
      forecast.push_back(one.forecasts()[i].time_us.value / one.forecasts()[0].time_us.value);
    }
  }
  if (t.answered > 0) t.mean_regret /= t.answered;
  t.rank_correlation = rank_correlation(measured, forecast);
  for (Bin& bin : t.bins)
    if (bin.count > 0) bin.said /= bin.count;
  return t;
}

ordered_json case_json(const Case& one) {
  ordered_json arms = ordered_json::array();
  for (std::size_t i = 0; i < one.arms.size(); ++i) {
    const Arm& arm = one.arms[i];
    const Answer& forecast = one.forecasts()[i];
    arms.push_back({{"line", arm.row.line},
                    {"dispatcher", arm.name},
                    {"backend", arm.row.backend},
                    {"measured_us", given_if(arm.ran(), arm.us())},
                    {"forecast_us", estimate_json(forecast.time_us)},
                    {"error", given_if(arm.ran(), arm.error)},
                    {"inside", arm.inside},
                    {"breakdown_us", breakdown_json(forecast.breakdown_us)},
                    {"unmeasured", forecast.unmeasured_parts()},
                    {"outside_domain", forecast.outside_domain},
                    {"assumptions", arm.row.assumptions}});
  }
  const PublishedRow& row = one.arms.front().row;
  return {{"id", one.id},
          {"gpu", row.gpu},
          {"model", row.model},
          {"grade", row.grade},
          {"measured_winner", one.arms[one.fastest].name},
          {"measured_margin", given_if(one.both_ran(), one.margin())},
          {"forecast_winner", one.recommended().name},
          {"recommended", one.recommended().name},
          {"probability", or_null(one.decision().probability())},
          {"verdict", name_of(one.decision().verdict)},
          {"said_loss_at_most", one.said_at_most()},
          {"loss", one.loss()},
          {"regret", one.loss()},
          {"measured_ratio", given_if(one.both_ran(), 1 + one.margin())},
          {"forecast_ratio", estimate_json(one.forecast_ratio())},
          {"ratio_inside", one.ratio_inside()},
          {"because", models::because(one.compared)},
          {"arms", std::move(arms)},
          {"left_out", one.left_out}};
}

ordered_json result_of(const CommonOptions& common, const std::vector<Case>& cases, const Totals& t,
                       const PublishedTable& table, const Anchored* known, const std::vector<Refit>* refits) {
  ordered_json result = new_result(common);
  const auto part = [](std::size_t some, std::size_t of) {
    return given_if(of > 0, static_cast<double>(some) / static_cast<double>(of));
  };
  const std::size_t all = cases.size(), answered = static_cast<std::size_t>(t.answered);
  result["decisions"] = ordered_json::array();
  for (const Case& one : cases) result["decisions"].push_back(case_json(one));
  result["right_share"] = part(t.right, answered);
  result["abstained_share"] = part(all - answered, all);
  result["mean_regret"] = t.mean_regret;
  result["worst_regret"] = t.worst_regret;
  result["mean_regret_of_all"] = t.mean_loss;
  result["answered_share"] = part(answered, all);
  result["good_share"] = part(t.good, answered);
  result["bound_held_share"] = part(t.bounds_held, all);
  result["mean_loss"] = t.mean_loss;
  result["fastest_share"] = part(t.fastest, all);
  if (known) result["ratio_median_abs_error"] = known->others.median_abs();
  result["median_abs_error"] = t.steps.median_abs();
  result["coverage"] = part(t.steps.inside, t.steps.errors.size());
  result["ratio_coverage"] = part(t.ratios_inside, t.ratios);
  result["rank_correlation"] = t.rank_correlation;
  result["probability_bins"] = ordered_json::array();
  for (const Bin& bin : t.bins)
    if (bin.count > 0)
      result["probability_bins"].push_back(
          {{"said", bin.said}, {"right", part(bin.right, bin.count)}, {"count", bin.count}});
  if (refits) result["left_out"] = left_out_json(*refits);
  result["skipped"] = ordered_json::array();
  for (const SkippedRow& s : table.skipped)
    result["skipped"].push_back({{"line", s.line},
                                 {"id", s.decision_id},
                                 {"backend", s.backend},
                                 {"model", s.model},
                                 {"reason", s.reason}});
  return result;
}

constexpr Table::Align kLeft = Table::Align::kLeft;

std::string digits(double value) { return format("{:.3f}", value); }

const std::vector<Column<Case>> kColumns{
    {{"decision", kLeft}, [](const Case& c) { return c.id; }},
    {{"measured winner", kLeft}, [](const Case& c) { return c.arms[c.fastest].name; }},
    {{"margin"}, [](const Case& c) { return c.both_ran() ? share(c.margin()) : "no memory"; }},
    {{"recommended", kLeft}, [](const Case& c) { return c.recommended().name; }},
    {{"P"}, [](const Case& c) { return format("{:.2f}", c.probability()); }},
    {{"verdict", kLeft}, [](const Case& c) { return std::string(name_of(c.decision().verdict)); }},
    {{"at most"}, [](const Case& c) { return share(c.said_at_most()); }},
    {{"loss"}, [](const Case& c) { return share(c.loss()); }},
    {{"ratio"}, [](const Case& c) { return c.both_ran() ? digits(1 + c.margin()) : "-"; }},
    {{"forecast"}, [](const Case& c) { return digits(c.forecast_ratio().value); }},
    {{"low"}, [](const Case& c) { return digits(c.forecast_ratio().low); }},
    {{"high"}, [](const Case& c) { return digits(c.forecast_ratio().high); }}};

std::string summary_of(const std::vector<Case>& cases, const Totals& t, const PublishedTable& table) {
  std::string text = "\n";
  for (const Bin& bin : t.bins)
    if (bin.count > 0) text += format("said {:.2f} in {}: right in {}\n", bin.said, bin.count, bin.right);
  for (const Case& one : cases)
    for (const std::string& arm : one.left_out) text += format("{}: without {}\n", one.id, arm);
  std::vector<std::string> lost;
  for (const SkippedRow& row : table.skipped)
    if (std::ranges::find(cases, row.decision_id, &Case::id) == cases.end() &&
        std::ranges::find(lost, row.decision_id) == lost.end()) {
      lost.push_back(row.decision_id);
      text += format("skipped {}: {}\n", row.decision_id.empty() ? "a line" : row.decision_id, row.reason);
    }
  const int all = static_cast<int>(cases.size());
  return text +
         format(
             "\n{} decisions: answered {}, of which within the tolerance {} and the fastest {}; open {}\n"
             "recommended and the fastest in {}; the loss stays within what was said in {}\n"
             "loss of those answered: mean {}, worst {}; following the recommendation everywhere: mean {}\n"
             "ratio of the two fastest inside the 90 % interval in {} of {}; rank correlation of the ratios {:.2f}\n"
             "{} steps, median absolute error {}; measured inside the 90 % interval in {} of {}\n",
             all, t.answered, t.good, t.right, all - t.answered, t.fastest, t.bounds_held,
             share(t.mean_regret), share(t.worst_regret), share(t.mean_loss), t.ratios_inside, t.ratios,
             t.rank_correlation, t.steps.errors.size(), share(t.steps.median_abs()), t.steps.inside,
             t.steps.errors.size());
}

}  // namespace

int validate_decisions(const TableQuestion& question, const CommonOptions& common) {
  PublishedTable table = read_tables(question.tables, RowsWith::kTimeOrLimit, "decision_id");
  std::vector<Refit> refits;
  if (question.leave_out) refits = leave_out_sources(table.rows, ProgressLine(common).teller());
  const int draws = question.draws.value_or(48);
  std::vector<Case> cases =
      decisions_of(table, question.anchored ? std::max(draws, models::kAnchorDraws) : draws, common);
  expect_some(!cases.empty(), question.tables.front(), "decision of which two rows", table);
  const Anchored known = question.anchored ? anchored(cases) : Anchored();
  if (question.anchored) cases = known.cases;
  const Totals totals = totals_of(cases);
  std::string text = summary_of(cases, totals, table) + left_out_text(refits);
  if (question.anchored)
    text +=
        format("each arm known in turn: the others are off by {} in the median; {} runs are not explained\n",
               share(known.others.median_abs()), known.unexplained);
  show(
      common,
      [&] {
        return result_of(common, cases, totals, table, question.anchored ? &known : nullptr,
                         question.leave_out ? &refits : nullptr);
      },
      table_of(kColumns, cases), text);
  if (question.max_error <= 0 || totals.mean_regret <= question.max_error) return 0;
  warn(common, format("check failed: the mean regret is {}, more than --max-error {}",
                      share(totals.mean_regret), share(question.max_error)));
  return 1;
}

}  // namespace moesim::tools
