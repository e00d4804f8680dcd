// A sweep over scenarios: a row per dispatcher, columns named like the JSON paths of `moesim compare`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/study/sweep_kind.h"

namespace moesim::tools {

namespace {

// A row: an answer, and the decision among all answers.
struct Scored {
  const Answer& answer;
  const models::Decision& decision;
  std::size_t index;

  bool winner() const { return static_cast<int>(index) == decision.winner; }
};

std::vector<FoundColumn<Scored>> scenario_columns(bool intervals, bool breakdown, bool priced) {
  using enum CellStyle;
  const auto three = Digits::fixed(3), four = Digits::fixed(4), six = Digits::fixed(6),
             whole = Digits::fixed(0), nine = Digits::significant(9);
  std::vector<FoundColumn<Scored>> all{
      {{"dispatcher", true}, [](const Scored& s) { return s.answer.dispatcher; }},
      {{"time_us.value", false, six, "time", kTime}, [](const Scored& s) { return s.answer.time_us.value; }}};
  const auto add = [&](SweepColumn column, std::function<Cell(const Scored&)> cell) {
    all.push_back({std::move(column), std::move(cell)});
  };
  if (intervals) {
    add({"time_us.low", false, six}, [](const Scored& s) { return s.answer.time_us.low; });
    add({"time_us.high", false, six}, [](const Scored& s) { return s.answer.time_us.high; });
  }
  add({"winner"}, [](const Scored& s) { return s.winner(); });
  if (intervals) {
    add({"winner.probability", false, four},
        [](const Scored& s) { return s.winner() ? optional_cell(s.decision.probability()) : Cell(); });
    add({"verdict", true},
        [](const Scored& s) { return s.winner() ? Cell(std::string(name_of(s.decision.verdict))) : Cell(); });
    const auto of_ranked = [](auto&& value) {
      return [value](const Scored& s) {
        return s.answer.ranked() && !s.decision.losses.empty() ? Cell(value(s)) : Cell();
      };
    };
    add({"fastest_probability", false, four},
        of_ranked([](const Scored& s) { return s.decision.fastest[s.index]; }));
    add({"expected_loss", false, four},
        of_ranked([](const Scored& s) { return s.decision.losses[s.index].expected; }));
    add({"loss_at_most", false, four},
        of_ranked([](const Scored& s) { return s.decision.losses[s.index].at_most; }));
  }
  for (std::size_t c = 0; breakdown && c < sim::kCategories; ++c)
    add({"breakdown_us." + std::string(sim::name(static_cast<sim::Category>(c))), false, six},
        [c](const Scored& s) { return s.answer.breakdown_us[c]; });
  add({"tokens_per_s_per_gpu", false, three, "tokens/s/GPU", kWhole, "{} tokens/s/GPU"},
      [](const Scored& s) { return s.answer.tokens_per_s_per_gpu(); });
  add({"mfu", false, six, "MFU", kPercent}, [](const Scored& s) { return s.answer.mfu; });
  add({"tx_bytes_per_rank.mean", false, whole}, [](const Scored& s) {
    const auto& bytes = s.answer.tx_bytes;
    return std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size());
  });
  add({"tx_bytes_per_rank.max", false, whole}, [](const Scored& s) {
    return static_cast<double>(*std::max_element(s.answer.tx_bytes.begin(), s.answer.tx_bytes.end()));
  });
  add({"overload.avg", false, six}, [](const Scored& s) { return s.answer.overload.printed().avg; });
  add({"overload.max", false, six}, [](const Scored& s) { return s.answer.overload.printed().max; });
  add({"overload.max_cum", false, six}, [](const Scored& s) { return s.answer.overload.printed().max_cum; });
  add({"peak_memory_bytes.max", false, whole, "memory [GB]", kGigabytes},
      [](const Scored& s) { return static_cast<double>(s.answer.memory.max_bytes); });
  add({"fits"}, [](const Scored& s) { return s.answer.memory.fits; });
  add({"fits_probability", false, four}, [](const Scored& s) { return s.answer.memory.fits_probability; });
  add({"outside_domain", false, four}, [](const Scored& s) { return s.answer.outside_domain; });
  if (priced) {
    add({"cost", false, nine}, [](const Scored& s) { return s.answer.cost; });
    add({"cost_per_million_tokens", false, nine, "per 10^6 tokens", kFour, "{} a million tokens"},
        [](const Scored& s) { return s.answer.cost_per_million_tokens(); });
  }
  return all;
}

class ScenarioSweep : public SweepKind {
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
    if (run_) j["anchor"] = anchor_json(*run_->anchor);
    return j;
  }
  void describe(nlohmann::ordered_json& record) const override {
    record["inputs"]["scenario"] = models::to_json(base_->resolved.asked);
    record["inputs"]["settings"] = models::settings_json(base_->resolved.asked);
    add_model(record, base_->resolved.scenario);
  }

  const SweepTable& table() const override { return *table_; }
  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1024; }
  std::unique_ptr<SweepAsker> asker(const models::Points& points) const override;

 private:
  std::string file_;
  std::vector<ScenarioPath> varied_;
  QuestionOptions options_;
  models::AnswerOptions asked_{.draws = 0, .breakdown = false, .each = true};
  Anchoring anchoring_;
  std::optional<Comparison> run_;  // of the base, where it was measured
  bool cost_ = false;
  std::optional<Base> base_;
  std::vector<FoundColumn<Scored>> columns_;
  std::optional<SweepTable> table_;
};

class ScenarioAsker : public SweepAsker {
 public:
  ScenarioAsker(const std::vector<FoundColumn<Scored>>& columns, const Base& base,
                const models::Points& points, const models::AnswerOptions& asked)
      : columns_(columns), asker_(base, points.paths()), asked_(asked) {}
  std::vector<Row> ask(const std::vector<PathValue>& values) override {
    const Comparison all = asker_.ask(values, asked_);
    std::vector<Row> rows;
    for (std::size_t i = 0; i < all.answers.size(); ++i) {
      const Answer& answer = all.answers[i];
      if (answer.ok())
        rows.push_back({cells_of(columns_, {answer, all.decision, i})});
      else
        rows.push_back({{answer.dispatcher}, answer.error});
    }
    return rows;
  }

 private:
  const std::vector<FoundColumn<Scored>>& columns_;
  Asker asker_;
  models::AnswerOptions asked_;
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
  columns_ = scenario_columns(asked_.draws > 0, asked_.breakdown, cost_);
  varied_ = points.paths();
  table_.emplace(format, varied_, columns_of(columns_));
  [[maybe_unused]] const Asker settable(*base_, points.paths());  // refuses paths that exclude each other
}

std::unique_ptr<SweepAsker> ScenarioSweep::asker(const models::Points& points) const {
  return std::make_unique<ScenarioAsker>(columns_, *base_, points, asked_);
}

SummaryShape ScenarioSweep::summary() const {
  SummaryShape shape = summary_of_scenarios(cost_);
  shape.asked = asked_text(base_->resolved.scenario, varied_);
  return shape;
}

}  // namespace

std::vector<SweepColumn> columns_of_scenarios(bool intervals, bool breakdown, bool priced) {
  return columns_of(scenario_columns(intervals, breakdown, priced));
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
  shape.not_best = "do not fit the memory";
  shape.with = "dispatcher";
  shape.shown = {"dispatcher", "time_us.value", "tokens_per_s_per_gpu",
                 priced ? "cost_per_million_tokens" : "mfu", "peak_memory_bytes.max"};
  return shape;
}

std::unique_ptr<SweepKind> sweep_of_scenarios() { return std::make_unique<ScenarioSweep>(); }

}  // namespace moesim::tools
