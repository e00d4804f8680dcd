// A sweep of plans: a row per training, the best plan that `moesim plan` finds for it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/answers/training_run.h"
#include "tools/moesim/questions/plan_question.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/training_run.h"
#include "tools/moesim/study/sweep_kind.h"

namespace moesim::tools {

namespace {

using models::PricedTraining;

// Columns besides those that `plan` prints; all are named "plan.NAME".
constexpr PlanColumn kFurther[] = {
    {"days.low", [](const PricedTraining& r) -> Cell { return r.days.low; }},
    {"days.high", [](const PricedTraining& r) -> Cell { return r.days.high; }},
    {"cost.low", [](const PricedTraining& r) -> Cell { return r.cost.low; }},
    {"cost.high", [](const PricedTraining& r) -> Cell { return r.cost.high; }},
    {"budget_probability", [](const PricedTraining& r) -> Cell { return r.budget_probability; }},
    {"meets", [](const PricedTraining& r) -> Cell { return r.meets; }},
    {"mfu", [](const PricedTraining& r) -> Cell { return r.answer.mfu; }},
    {"command", [](const PricedTraining& r) -> Cell { return plan_command(r); }, true},
};

// Returns the columns shown to people.
std::vector<SweepColumn> shown_columns(const std::string& currency) {
  using enum CellStyle;
  return {{"cluster", true, {}, "machine"},
          {"gpus", false, {}, "GPUs", kWhole, "{} GPUs"},
          {"days", false, {}, "days", kThree, "{} days"},
          {"cost", false, {}, "cost [" + currency + "]", kWhole, "{} " + currency},
          {"tp", false, {}, "TP", kWhole},
          {"pp", false, {}, "PP", kWhole},
          {"ep", false, {}, "EP", kWhole},
          {"dispatcher", true, {}, "dispatcher"},
          {"mfu", false, {}, "MFU", kPercent}};
}

std::vector<FoundColumn<PricedTraining>> all_columns(const std::string& currency) {
  const std::vector<SweepColumn> shown = shown_columns(currency);
  std::vector<FoundColumn<PricedTraining>> all;
  const auto add = [&](const PlanColumn& one) {
    const auto found = std::find_if(shown.begin(), shown.end(),
                                    [&](const SweepColumn& column) { return column.name == one.name; });
    SweepColumn column = found == shown.end() ? SweepColumn{one.name, one.text} : *found;
    column.name = std::string("plan.") + one.name;
    all.push_back({std::move(column), one.cell});
  };
  for (const PlanColumn& one : plan_columns()) add(one);
  for (const PlanColumn& one : kFurther) add(one);
  return all;
}

class PlanSweep : public SweepKind {
 public:
  void declare(CLI::App& app) override {
    question_.declare(app);
    options_.declare(app);
  }
  ScenarioPath axis(std::string_view text) const override {
    for (const ScenarioPath& own : PlanQuestion::axes())
      if (own.path == text) return own;
    return find_path(text);
  }

  void prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
               const std::function<void(const std::string&)>& say) override;
  void read_inputs(const models::Points& points) const override;
  nlohmann::ordered_json definition() const override {
    nlohmann::ordered_json said = nlohmann::ordered_json::object();
    for (const auto& [option, value] : question_.said()) said[option] = value;
    return {{"scenario", models::to_json(base_->resolved.asked)}, {"plan", std::move(said)}};
  }
  void describe(nlohmann::ordered_json& record) const override {
    const models::Scenario& scenario = base_->resolved.scenario;
    record["inputs"]["scenario"] = models::to_json(scenario);
    if (scenario.model.hidden > 0) add_model(record, scenario);
  }

  const SweepTable& table() const override { return *table_; }
  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1; }
  std::unique_ptr<SweepAsker> asker(const models::Points& points) const override;

 private:
  QuestionOptions options_;
  PlanQuestion question_;
  std::optional<Base> base_;
  std::vector<FoundColumn<PricedTraining>> columns_;
  std::optional<SweepTable> table_;
};

class PlanAsker : public SweepAsker {
 public:
  // `scenario_paths`: the axes that are not options of plan.
  PlanAsker(const PlanQuestion& question, const Base& base, const models::Points& points,
            std::vector<ScenarioPath> scenario_paths, const std::vector<FoundColumn<PricedTraining>>& columns)
      : question_(question),
        points_(points),
        base_(base),
        changes_(base.question, std::move(scenario_paths), Origin::said("--grid")),
        columns_(columns) {}

  std::vector<Row> ask(const std::vector<PathValue>& values) override {
    PlanQuestion question = question_;
    std::vector<PathValue> of_scenario;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!question.say(points_.paths()[i].path, values[i].text)) of_scenario.push_back(values[i]);
    std::string batch;
    models::RunQuestion q = question.question(base_.with(changes_.make(of_scenario)), batch);
    // A row contains one plan, and points share the threads.
    q.upgrades = q.lower_precision = false;
    q.threads = 1;
    return {{cells_of(columns_, models::plan_run(q).plans.front())}};
  }

 private:
  const PlanQuestion& question_;
  const models::Points& points_;
  const Base& base_;
  models::Changes changes_;
  const std::vector<FoundColumn<PricedTraining>>& columns_;
};

bool of_plan(const ScenarioPath& path) {
  const std::vector<ScenarioPath> own = PlanQuestion::axes();
  return std::any_of(own.begin(), own.end(), [&](const auto& one) { return one.path == path.path; });
}

std::vector<ScenarioPath> scenario_axes(const models::Points& points) {
  std::vector<ScenarioPath> paths;
  for (const ScenarioPath& path : points.paths())
    if (!of_plan(path)) paths.push_back(path);
  return paths;
}

void PlanSweep::prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
                        const std::function<void(const std::string&)>&) {
  for (const auto& [option, value] : question_.said())
    for (const ScenarioPath& path : points.paths())
      if (path.path == option)
        throw InputError(
            fmt::format("--{}: found beside an axis of that name, expected one of them", option));
  options_.say_unsaid("scope", "step");
  if (options_.searches()) throw InputError("--search: found beside a search of plans, expected one of them");
  base_ = Base::of(options_.question(common), common, false);
  [[maybe_unused]] const Asker settable(*base_, scenario_axes(points));
  const auto is_axis = [&](std::string_view name) {
    return std::any_of(points.paths().begin(), points.paths().end(), [&](const ScenarioPath& path) {
      return path.path.substr(0, path.path.find('.')) == name;
    });
  };
  if (base_->resolved.scenario.model.hidden == 0 && !is_axis("model"))
    throw InputError("sweep plan: found no model, expected --model NAME or an axis model");
  if (question_.tokens().empty() && !is_axis("tokens"))
    throw InputError("sweep plan: found no --tokens, expected how many are trained on, such as 15T");
  columns_ = all_columns(question_.prices(base_->resolved.scenario).currency);
  table_.emplace(format, points.paths(), columns_of(columns_));
}

void PlanSweep::read_inputs(const models::Points& points) const {
  question_.read_inputs();
  read_named(*base_, points, [](const ScenarioPath& path) { return !of_plan(path); });
  points.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
    PlanQuestion changed = question_;
    try {
      if (changed.say(path.path, value.text)) changed.read_inputs();
    } catch (const InputError&) {  // its rows will report the error
    }
  });
}

std::unique_ptr<SweepAsker> PlanSweep::asker(const models::Points& points) const {
  return std::make_unique<PlanAsker>(question_, *base_, points, scenario_axes(points), columns_);
}

// Ranks by the minimised quantity; by default the cost, so that different numbers of GPUs compare.
SummaryShape PlanSweep::summary() const {
  const bool time = question_.ranks_by_time();
  SummaryShape shape;
  shape.many = "trainings";
  shape.noun = "plan";
  shape.answered = "plan.days";
  shape.score = time ? "plan.days" : "plan.cost";
  shape.smaller = true;
  shape.score_words = time ? "the days" : "the cost";
  shape.fits = "plan.meets";
  shape.none_fits = "none of which surely keeps the deadline and the budget";
  shape.not_best = "do not surely keep the deadline and the budget";
  shape.shown = {"plan.cluster", "plan.gpus", "plan.days",       "plan.cost", "plan.tp",
                 "plan.pp",      "plan.ep",   "plan.dispatcher", "plan.mfu"};
  return shape;
}

}  // namespace

std::unique_ptr<SweepKind> sweep_of_plans() { return std::make_unique<PlanSweep>(); }

}  // namespace moesim::tools
