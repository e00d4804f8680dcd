// Measured decisions between dispatchers against forecast ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/statistics.h"
#include "models/answers/answer.h"
#include "models/answers/invariants.h"
#include "models/answers/sentences.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
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
  for (Arm& arm : one.arms)
    if (std::ranges::count(one.arms, arm.name, &Arm::name) > 1)
      arm.name += fmt::format(" of line {}", arm.row.line);
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
  std::erase_if(cases, [&](const Case& one) {
    const auto trainer = [](const Arm& arm) {
      return arm.row.framework.substr(0, arm.row.framework.find(' '));
    };
    const auto forecast = [](const Answer& answer) { return answer.time_us.value; };
    const auto differ = [](const auto& all, const auto& of) {
      return std::ranges::adjacent_find(all, std::ranges::not_equal_to(), of) != all.end();
    };
    const char* reason =
        one.arms.size() < 2                  ? "the only arm of its decision that can be forecast"
        : differ(one.arms, trainer)          ? "its arms ran in several trainers, not only dispatchers"
        : !differ(one.forecasts(), forecast) ? "its arms are one dispatcher here, in several implementations"
                                             : nullptr;
    const RowText& first = one.arms.front().row;
    if (reason) table.skipped.push_back({first, reason});
    return reason != nullptr;
  });
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

// An arm with its forecast.
struct ForecastArm {
  const Arm& arm;
  const Answer& forecast;
};

Columns<ForecastArm> columns_of(Of<ForecastArm>) {
  using F = ForecastArm;
  const char* no_memory = "null where it ran out of memory";
  return {{"line", [](const F& f) { return f.arm.row.line; }},
          {"dispatcher", [](const F& f) { return f.arm.name; }},
          {"backend", [](const F& f) { return f.arm.row.backend; }},
          {"measured_us", [](const F& f) { return where(f.arm.ran(), f.arm.us()); }, no_memory},
          {"forecast_us", [](const F& f) { return f.forecast.time_us; }},
          {"error", [](const F& f) { return where(f.arm.ran(), f.arm.error); }, no_memory},
          {"inside", [](const F& f) { return f.arm.inside; }},
          {"breakdown_us", [](const F& f) { return breakdown_of(f.forecast.breakdown_us); }},
          {"unmeasured", [](const F& f) { return f.forecast.unmeasured_parts(); }},
          {"outside_domain", [](const F& f) { return f.forecast.outside_domain; }},
          {"assumptions", [](const F& f) { return f.arm.row.assumptions; }}};
}

std::string margin_text(double margin) { return std::isfinite(margin) ? percent(margin) : "no memory"; }

Columns<Case> columns_of(Of<Case>) {
  using C = Case;
  const auto row = [](auto of) { return [of](const C& c) { return c.arms.front().row.*of; }; };
  const auto recommended = [](const C& c) { return c.recommended().name; };
  using R = PublishedRow;
  return {
      {"id", &C::id, "", "decision"},
      {"gpu", row(&R::gpu)},
      {"model", row(&R::model)},
      {"grade", row(&R::grade)},
      {"measured_winner", [](const C& c) { return c.arms[c.fastest].name; }, "", "measured winner"},
      {"measured_margin", [](const C& c) { return where(c.both_ran(), c.margin()); },
       "of the second fastest to the fastest as measured, minus 1; null where one of them ran out of memory"},
      {"", &C::margin, "", {"margin", margin_text}},
      {"forecast_winner", recommended, "recommended"},
      {"recommended", recommended, "of least expected loss", "recommended"},
      {"probability",
       [](const C& c) { return c.decision().probability(); },
       "that the recommended one is the fastest; null without draws",
       {"P", 2}},
      {"verdict", [](const C& c) { return name_of(c.decision().verdict); },
       one_of({"clear", "safe", "open", "only_one"},
              "of the recommendation, with a tolerance of 10 %; only_one: no other arm can be chosen"),
       "verdict"},
      {"said_loss_at_most", &C::said_at_most, "loss of the recommended one that is not exceeded with 90 %",
       share_head("at most", 1)},
      {"loss", &C::loss,
       "time lost by running the recommended one, as a share of the fastest one's time as measured; 1 where it "
       "ran out of memory",
       share_head("loss", 1)},
      {"regret", &C::loss, "loss"},
      {"measured_ratio",
       [](const C& c) { return where(c.both_ran(), 1 + c.margin()); },
       "of the two that were measured as the fastest, the slower to the faster; null where one of them ran out "
       "of memory",
       {"ratio", 3}},
      {"forecast_ratio", &C::forecast_ratio},
      {"", [](const C& c) { return c.forecast_ratio().value; }, "", {"forecast", 3}},
      {"", [](const C& c) { return c.forecast_ratio().low; }, "", {"low", 3}},
      {"", [](const C& c) { return c.forecast_ratio().high; }, "", {"high", 3}},
      {"ratio_inside", &C::ratio_inside},
      {"because", [](const C& c) { return models::because(c.compared); }},
      {"arms",
       [](const C& c) {
         std::vector<ForecastArm> all;
         for (std::size_t i = 0; i < c.arms.size(); ++i) all.push_back({c.arms[i], c.forecasts()[i]});
         return all;
       }},
      {"left_out", &C::left_out, "arms that cannot be forecast, with the reason"}};
}

std::optional<double> part(int some, std::size_t of) {
  return of > 0 ? std::optional(static_cast<double>(some) / static_cast<double>(of)) : std::nullopt;
}

Columns<Bin> columns_of(Of<Bin>) {
  return {{"said", &Bin::said, "mean probability of the recommended ones in the bin"},
          {"right", [](const Bin& b) { return part(b.right, static_cast<std::size_t>(b.count)); },
           "share of them that were measured as the fastest"},
          {"count", &Bin::count}};
}

struct Decisions {
  std::vector<Case> cases;
  Totals t;
  std::optional<Anchored> known;
  std::optional<std::vector<Refit>> refits;
  std::vector<SkippedRow> skipped;
};

Columns<Decisions> columns_of(Of<Decisions>) {
  using D = Decisions;
  const auto of_all = [](int Totals::*some) {
    return [some](const D& d) { return part(d.t.*some, d.cases.size()); };
  };
  const auto of_answered = [](int Totals::*some) {
    return [some](const D& d) { return part(d.t.*some, static_cast<std::size_t>(d.t.answered)); };
  };
  const auto total = [](double Totals::*one) { return [one](const D& d) { return d.t.*one; }; };
  using S = SkippedRow;
  const Columns<S> skipped{{"line", &S::line},
                           {"id", &S::decision_id},
                           {"backend", &S::backend},
                           {"model", &S::model},
                           {"reason", &S::reason}};
  Columns<D> all{
      {"decisions", &D::cases, "with --anchored one for each arm that is known in turn"},
      {"right_share", of_answered(&Totals::right), "of those answered: the recommended one is the fastest"},
      {"abstained_share",
       [](const D& d) { return part(static_cast<int>(d.cases.size()) - d.t.answered, d.cases.size()); },
       "of all: open"},
      {"mean_regret", total(&Totals::mean_regret), "of those answered"},
      {"worst_regret", total(&Totals::worst_regret), "of those answered"},
      {"mean_regret_of_all", total(&Totals::mean_loss), "mean_loss"},
      {"answered_share", of_all(&Totals::answered), "of all: clear or safe"},
      {"good_share", of_answered(&Totals::good), "of those answered: the loss is within the tolerance"},
      {"bound_held_share", of_all(&Totals::bounds_held), "of all: the loss is within said_loss_at_most"},
      {"mean_loss", total(&Totals::mean_loss), "of all, following the recommendation"},
      {"fastest_share", of_all(&Totals::fastest), "of all: the fastest was recommended"},
      {"ratio_median_abs_error?",
       [](const D& d) { return d.known ? std::optional(d.known->others.median_abs()) : std::nullopt; },
       "with --anchored: of the forecasts of the arms that are not the known one"},
      {"median_abs_error", [](const D& d) { return d.t.steps.median_abs(); }, "of the steps"},
      {"coverage", [](const D& d) { return part(d.t.steps.inside, d.t.steps.errors.size()); },
       "share of the steps inside the 90 % interval"},
      {"ratio_coverage",
       [](const D& d) { return part(d.t.ratios_inside, static_cast<std::size_t>(d.t.ratios)); },
       "share of the measured ratios inside the 90 % interval"},
      {"rank_correlation", total(&Totals::rank_correlation),
       "of the ratios to the first arm of each decision"},
      {"probability_bins",
       [](const D& d) {
         std::vector<Bin> all(d.t.bins.begin(), d.t.bins.end());
         std::erase_if(all, [](const Bin& bin) { return bin.count == 0; });
         return all;
       }},
      {"left_out?", &D::refits,
       "with --leave-out source: constants that a publication's rows set, and their values without it"}};
  return all.list("skipped", skipped, &D::skipped);
}

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
             percent(t.mean_regret), percent(t.worst_regret), percent(t.mean_loss), t.ratios_inside, t.ratios,
             t.rank_correlation, t.steps.errors.size(), percent(t.steps.median_abs()), t.steps.inside,
             t.steps.errors.size());
}

}  // namespace

const ResultSchema kDecisionsSchema("validate-decisions", "validate --decisions", schema_of<Decisions>);

int validate_decisions(const TableQuestion& question, const CommonOptions& common) {
  PublishedTable table = read_tables(question.tables, RowsWith::kTimeOrLimit, "decision_id");
  Decisions out;
  if (question.leave_out) out.refits = leave_out_sources(table.rows, ProgressLine(common).teller());
  const int draws = question.draws;
  out.cases = decisions_of(table, question.anchored ? std::max(draws, models::kAnchorDraws) : draws, common);
  expect_some(!out.cases.empty(), question.tables.front(), "decision of which two rows", table);
  if (question.anchored) out.cases = out.known.emplace(anchored(out.cases)).cases;
  out.skipped = table.skipped;
  const Totals& totals = out.t = totals_of(out.cases);
  std::string text =
      summary_of(out.cases, totals, table) + left_out_text(out.refits.value_or(std::vector<Refit>()));
  if (out.known)
    text +=
        format("each arm known in turn: the others are off by {} in the median; {} runs are not explained\n",
               percent(out.known->others.median_abs()), out.known->unexplained);
  show(common, json_of(out), table_of(out.cases), text);
  if (question.max_error <= 0 || totals.mean_regret <= question.max_error) return 0;
  warn(common, format("check failed: the mean loss is {}, more than --max-error {}",
                      percent(totals.mean_regret), percent(question.max_error)));
  return 1;
}

}  // namespace moesim::tools
