// A sweep over scenarios: a row per dispatcher, columns named like the JSON paths of `moesim compare`.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/sweeps/sweep_inputs.h"
#include "tools/moesim/sweeps/sweep_kind.h"

namespace moesim::tools {

namespace {

class ScenarioSweep : public SweepKind {
 public:
  void declare(CLI::App& app) override {
    app.add_option("scenario", file_, "Scenario file, or a job's (see compare), that the values are put into")
        ->type_name("FILE");
    options_.declare_fields(app);
    app.add_flag("--breakdown", asked_.breakdown, "Columns with the parts of the time");
    app.add_option("--draws", asked_.draws, "Draws of the profile for intervals [0: none]")
        ->check(CLI::Range(0, models::kMostDraws));
  }
  ScenarioPath axis(std::string_view text) const override { return find_path(text); }

  void prepare(const SweepPlan& plan, RowFormat format, const CommonOptions& common,
               const std::function<void(const std::string&)>& say) override;
  void read_inputs(const SweepPlan& plan) const override { read_named(*base_, plan); }
  nlohmann::ordered_json definition() const override {
    return {{"scenario", models::to_json(base_->resolved.scenario)},
            {"draws", asked_.draws},
            {"breakdown", asked_.breakdown}};
  }
  void describe(nlohmann::ordered_json& record) const override {
    record["inputs"]["scenario"] = models::to_json(base_->resolved.scenario);
    record["inputs"]["settings"] = models::settings_json(base_->resolved.scenario);
    add_model(record, base_->resolved.scenario);
  }

  const SweepTable& table() const override { return *table_; }
  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1024; }
  std::unique_ptr<SweepAsker> asker(const SweepPlan& plan) const override;
  void append(std::string& rows, std::uint64_t index, const std::vector<PathValue>& values,
              const Comparison& evaluation) const;

 private:
  void append_answer(SweepTable::Row& row, const Answer& answer, const models::Decision& decision,
                     bool winner) const;

  std::string file_;
  QuestionOptions options_;
  AskOptions asked_{.draws = 0, .breakdown = false};
  bool cost_ = false;
  std::optional<Base> base_;
  std::optional<SweepTable> table_;
};

class ScenarioAsker : public SweepAsker {
 public:
  ScenarioAsker(const ScenarioSweep& kind, const Base& base, const SweepPlan& plan, const AskOptions& asked)
      : kind_(kind), asker_(base, plan.paths()), asked_(asked) {}
  void ask(std::uint64_t index, const std::vector<PathValue>& values, std::string& rows) override {
    kind_.append(rows, index, values, asker_.ask(values, asked_));
  }

 private:
  const ScenarioSweep& kind_;
  Asker asker_;
  AskOptions asked_;
};

void ScenarioSweep::prepare(const SweepPlan& plan, RowFormat format, const CommonOptions& common,
                            const std::function<void(const std::string&)>& say) {
  if (!file_.empty()) options_.take_file(file_, std::nullopt);
  if (!options_.asks_anything())
    throw InputError("sweep: found no scenario, expected a file, or --model and what else there is to say");
  const auto any_axis = [&](const auto& is) {
    return std::any_of(plan.paths().begin(), plan.paths().end(), is);
  };
  // Where the rows have models or machines of their own, each chooses its own plan.
  const bool own_plans = any_axis([](const ScenarioPath& path) {
    return path.path == "scope" || path.path == "gpus" || path.top() == "model" || path.top() == "cluster";
  });
  base_ = Base::of(options_.question(common), common, !own_plans);
  if (own_plans) base_->resolver = models::Resolver(resolving(common));
  if (const models::ChosenPlan& chosen = base_->resolved.chosen; !chosen.options.empty())
    say(fmt::format("plan chosen: {} ({})", chosen.options, chosen.because));
  cost_ = base_->question.said.gave("prices") ||
          any_axis([](const ScenarioPath& path) { return path.path.starts_with("prices."); });
  const bool intervals = asked_.draws > 0;
  std::vector<std::string> found{"dispatcher", "time_us.value"};
  if (intervals) found.insert(found.end(), {"time_us.low", "time_us.high"});
  found.emplace_back("winner");
  if (intervals) found.emplace_back("winner.probability");
  if (asked_.breakdown)
    for (std::size_t c = 0; c < sim::kCategories; ++c)
      found.push_back("breakdown_us." + std::string(sim::name(static_cast<sim::Category>(c))));
  found.insert(found.end(), {"tokens_per_s_per_gpu", "mfu", "tx_bytes_per_rank.mean", "tx_bytes_per_rank.max",
                             "overload.avg", "overload.max", "overload.max_cum", "peak_memory_bytes.max",
                             "fits", "fits_probability", "outside_domain"});
  if (cost_) found.insert(found.end(), {"cost", "cost_per_million_tokens"});
  table_.emplace(format, plan.paths(), std::move(found));
  [[maybe_unused]] const Asker settable(*base_, plan.paths());  // says what cannot be set together
}

std::unique_ptr<SweepAsker> ScenarioSweep::asker(const SweepPlan& plan) const {
  return std::make_unique<ScenarioAsker>(*this, *base_, plan, asked_);
}

void ScenarioSweep::append(std::string& rows, std::uint64_t index, const std::vector<PathValue>& values,
                           const Comparison& e) const {
  for (std::size_t i = 0; i < e.answers.size(); ++i) {
    const Answer& a = e.answers[i];
    SweepTable::Row row = table_->row(rows, index, values);
    row.text(a.dispatcher);
    if (a.ok()) append_answer(row, a, e.decision, static_cast<int>(i) == e.decision.winner);
    row.skip_to_error();
    if (a.ok())
      row.none();
    else
      row.text(a.error);
    row.end();
  }
}

void ScenarioSweep::append_answer(SweepTable::Row& row, const Answer& a, const models::Decision& decision,
                                  bool winner) const {
  const double tx_mean =
      std::accumulate(a.tx_bytes.begin(), a.tx_bytes.end(), 0.0) / static_cast<double>(a.tx_bytes.size());
  const auto tx_max = static_cast<double>(*std::max_element(a.tx_bytes.begin(), a.tx_bytes.end()));
  const bool intervals = asked_.draws > 0;
  row.plain("{:.6f}", a.time_us.value);
  if (intervals) {
    row.plain("{:.6f}", a.time_us.low);
    row.plain("{:.6f}", a.time_us.high);
  }
  row.plain("{}", winner);
  if (intervals) {
    if (winner)
      row.plain("{:.4f}", decision.probability);
    else
      row.none();
  }
  if (asked_.breakdown)
    for (const double us : a.breakdown_us) row.plain("{:.6f}", us);
  row.plain("{:.3f}", a.tokens_per_s_per_gpu());
  row.plain("{:.6f}", a.mfu);
  row.plain("{:.0f}", tx_mean);
  row.plain("{:.0f}", tx_max);
  row.plain("{:.6f}", a.overload.printed().avg);
  row.plain("{:.6f}", a.overload.printed().max);
  row.plain("{:.6f}", a.overload.printed().max_cum);
  row.plain("{:.0f}", a.memory.max_bytes);
  row.plain("{}", a.memory.fits);
  row.plain("{:.4f}", a.memory.fits_probability);
  row.plain("{:.4f}", a.outside_domain);
  if (cost_) {
    row.plain("{:.9g}", a.cost);
    row.plain("{:.9g}", a.cost_per_million_tokens());
  }
}

SummaryShape ScenarioSweep::summary() const { return summary_of_scenarios(cost_); }

}  // namespace

// By what a million tokens cost where there are prices, else by tokens per second and GPU, so that other
// batches and sequences compare.
SummaryShape summary_of_scenarios(bool priced) {
  using enum CellStyle;
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
  shape.told = {{"tokens_per_s_per_gpu", "{} tokens/s/GPU", kWhole}};
  if (priced) shape.told.push_back({"cost_per_million_tokens", "{} a million tokens", kFour});
  shape.shown = {{"dispatcher", "dispatcher", kText},
                 {"time_us.value", "time", kTime},
                 {"tokens_per_s_per_gpu", "tokens/s/GPU", kWhole}};
  if (priced)
    shape.shown.push_back({"cost_per_million_tokens", "per 10^6 tokens", kFour});
  else
    shape.shown.push_back({"mfu", "MFU", kPercent});
  shape.shown.push_back({"peak_memory_bytes.max", "memory [GB]", kGigabytes});
  return shape;
}

std::unique_ptr<SweepKind> sweep_of_scenarios() { return std::make_unique<ScenarioSweep>(); }

}  // namespace moesim::tools
