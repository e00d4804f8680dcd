// A sweep over scenarios: a row per dispatcher, columns named like the JSON paths of `moesim compare`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/study/sweep_kind.h"

namespace moesim::tools {

namespace {

// Digits of the figures of files.
Digits digits_of(std::string_view path) {
  const auto holds = [&](std::string_view word) { return path.find(word) != std::string_view::npos; };
  if (path.starts_with("cost")) return Digits::significant(9);
  if (holds("bytes")) return Digits::fixed(0);
  if (holds("tokens_per_s")) return Digits::fixed(3);
  const bool share = holds("probability") || holds("loss") || holds("domain");
  return Digits::fixed(share && !holds("_us") ? 4 : 6);
}

SweepRows<Told> rows_of(bool intervals, bool breakdown, bool priced) {
  const auto won = [](const Told& t) { return t.all->winner() == &t.answer; };
  Columns<Told> all;
  // The parts of the time are added below, zeros too.
  all.add(row_figures().without("breakdown_us").without("unmeasured"),
          [](const Told& t) -> const Answer& { return t.answer; })
      .add(chances());
  all.add({{"winner", won},
           {"winner.probability",
            [=](const Told& t) { return won(t) ? t.all->decision.probability() : std::nullopt; }},
           {"verdict", [=](const Told& t) { return where(won(t), name_of(t.all->decision.verdict)); }}});
  std::string shown = "dispatcher,time_us.value";
  if (intervals) shown += ",time_us.low,time_us.high";
  shown += ",winner";
  if (intervals) shown += ",winner.probability,verdict,fastest_probability,expected_loss,loss_at_most";
  for (std::size_t c = 0; breakdown && c < sim::kCategories; ++c) {
    const std::string path = fmt::format("breakdown_us.{}", sim::name(static_cast<sim::Category>(c)));
    all.add({{path, [c](const Told& t) { return t.answer.breakdown_us[c]; }}});
    shown += "," + path;
  }
  shown +=
      ",tokens_per_s_per_gpu,mfu,tx_bytes_per_rank.mean,tx_bytes_per_rank.max,overload.avg,overload.max,"
      "overload.max_cum,peak_memory_bytes.max,fits,fits_probability,outside_domain";
  if (priced) shown += ",cost,cost_per_million_tokens";
  SweepRows<Told> rows(all, shown);
  for (SweepColumn& one : rows.columns) one.digits = digits_of(one.path);
  return rows;
}

class ScenarioSweep : public SweepOf<Told> {
 public:
  void declare(CLI::App& app) override {
    app.add_option("scenario", file_, "Scenario file, or a job's (see compare), that the values are put into")
        ->type_name("FILE");
    options_.declare_fields(app);
    anchoring_.declare(app);
    app.add_flag("--breakdown", asked_.breakdown, "Columns with the parts of the time");
    app.add_option("--draws", asked_.draws, "Draws of the profile for intervals [0: none]")
        ->check(CLI::Range(0, models::kMostDraws));
  }
  ScenarioPath axis(std::string_view text) const override { return find_path(text); }

  void prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
               const std::function<void(const std::string&)>& say) override;
  const Comparison* unexplained() const override {
    return run_ && !run_->anchor->explained ? &*run_ : nullptr;
  }
  void read_inputs(const models::Points& points) const override { read_named(*base_, points); }
  nlohmann::ordered_json definition() const override {
    nlohmann::ordered_json j{{"scenario", models::to_json(base_->resolved.asked)},
                             {"draws", asked_.draws},
                             {"breakdown", asked_.breakdown}};
    if (asked_.tolerance != models::Decision::kTolerance) j["tolerance"] = asked_.tolerance;
    if (run_) j["anchor"] = json_of(*run_->anchor);
    return j;
  }
  void describe(nlohmann::ordered_json& record) const override {
    record["inputs"]["scenario"] = models::to_json(base_->resolved.asked);
    record["inputs"]["settings"] = models::settings_json(base_->resolved.asked);
    add_model(record, base_->resolved.scenario);
  }

  SummaryShape summary() const override;
  SweepAsker asker(const models::Points& points) const override;

 private:
  std::string file_;
  std::vector<ScenarioPath> varied_;
  QuestionOptions options_;
  models::AnswerOptions asked_{.draws = 0, .breakdown = false, .each = true};
  Anchoring anchoring_;
  std::optional<Comparison> run_;  // of the base, where it was measured
  bool cost_ = false;
  std::optional<Base> base_;
};

void ScenarioSweep::prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
                            const std::function<void(const std::string&)>& say) {
  if (!file_.empty()) options_.take_file(file_, std::nullopt);
  if (!options_.asks_anything())
    throw InputError("sweep: found no scenario, expected a file, or --model and what else there is to say");
  const auto any_axis = [&](const auto& is) {
    return std::any_of(points.paths().begin(), points.paths().end(), is);
  };
  // Where the rows have different models or machines, each chooses its own plan.
  const bool own_plans = any_axis([](const ScenarioPath& path) {
    return path.path == "scope" || path.path == "gpus" || path.top() == "model" || path.top() == "cluster";
  });
  base_ = Base::of(options_.question(common), common, !own_plans);
  if (own_plans) base_->resolver = models::Resolver(resolving(common));
  if (const models::ChosenPlan& chosen = base_->resolved.chosen; !chosen.options.empty())
    say(fmt::format("plan chosen: {} ({})", chosen.options, chosen.because));
  cost_ = base_->question.said.gave("prices") || base_->question.said.gave("ownership.buy") ||
          any_axis([](const ScenarioPath& path) {
            return path.path.starts_with("prices.") || path.path == "ownership.buy";
          });
  asked_.tolerance = anchoring_.tolerance();
  if (anchoring_.measured()) {
    models::AnswerOptions of_run = asked_;
    of_run.measured = anchoring_.of(base_->resolved.scenario);
    run_ = ask(base_->resolved.scenario, of_run);
    if (unexplained()) return;
    asked_.anchor = &*run_->anchor;
    asked_.draws = run_->anchor->drawn;
  }
  varied_ = points.paths();
  set_rows(format, points, rows_of(asked_.draws > 0, asked_.breakdown, cost_));
  [[maybe_unused]] const Asker settable(*base_, points.paths());  // refuses paths that exclude each other
}

SweepAsker ScenarioSweep::asker(const models::Points& points) const {
  return [this, asker = std::make_shared<Asker>(*base_, points.paths())](const auto& values) {
    const Comparison all = asker->ask(values, asked_);
    std::vector<FoundRow> rows;
    for (const Answer& answer : all.answers)
      if (answer.ok())
        rows.push_back(row_of({answer, *all.scenario, Detail::kNone, &all}));
      else
        rows.push_back({{answer.dispatcher}, answer.error});
    return rows;
  };
}

SummaryShape ScenarioSweep::summary() const {
  SummaryShape shape = summary_of_scenarios(cost_);
  shape.asked = asked_text(base_->resolved.scenario, varied_);
  return shape;
}

}  // namespace

const ResultSchema kRows("sweep-row", [] {
  return row_schema("a line of results.jsonl", columns_of_scenarios(true, true, true),
                    columns_of_scenarios(false, false, false));
});

std::vector<SweepColumn> columns_of_scenarios(bool intervals, bool breakdown, bool priced) {
  return rows_of(intervals, breakdown, priced).columns;
}

// Ranks by the price of a million tokens where there are prices, else by tokens per second and GPU, so that
// different batches and sequences compare.
SummaryShape summary_of_scenarios(bool priced) {
  SummaryShape shape;
  shape.many = "scenarios";
  shape.answered = "time_us.value";
  shape.score = priced ? "cost_per_million_tokens" : "tokens_per_s_per_gpu";
  shape.smaller = priced;
  shape.score_words = priced ? "the cost of a token" : "tokens/s/GPU";
  shape.winner = "winner";
  shape.fits = "fits";
  shape.none_fits = "none of which fits the memory";
  shape.not_best = "for want of memory";
  shape.with = "dispatcher";
  shape.shown = {"dispatcher", "time_us.value", "tokens_per_s_per_gpu",
                 priced ? "cost_per_million_tokens" : "mfu", "peak_memory_bytes.max"};
  return shape;
}

std::unique_ptr<SweepKind> sweep_of_scenarios() { return std::make_unique<ScenarioSweep>(); }

}  // namespace moesim::tools
