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

// The figures of `plan`, named "plan.NAME".
SweepRows<PricedTraining> rows_of(const std::string& currency) {
  Columns<PricedTraining> all = plan_figures().without("group");
  all.add({{"bought", [](const PricedTraining& p) { return p.hour.bought; }}});
  SweepRows<PricedTraining> rows(
      all,
      "cluster,gpus,idle_gpus,tp=parallel.tp,cp=parallel.cp,pp=parallel.pp,vpp=parallel.vpp,ep=parallel.ep,"
      "etp=parallel.etp,dp=parallel.dp,microbatches=parallel.microbatches,micro_batch=parallel.micro_batch,"
      "precision,schedule,recompute,overlap,launch,dispatcher,step_time_us=step_time_us.value,days=days.value,"
      "cost=cost.value,bought,purchase=purchase.price,rent_cost=purchase.rent_cost,deadline_probability,"
      "fits_probability,days.low,days.high,cost.low,cost.high,budget_probability,meets,mfu,command");
  for (SweepColumn& one : rows.columns) {
    if (one.path.starts_with("parallel.")) one.schema["type"] = "integer";
    if (one.name == "cost") one.head = fmt::format("cost [{}]", currency), one.told = "{} " + currency;
    one.name.insert(0, "plan.");
  }
  return rows;
}

class PlanSweep : public SweepOf<PricedTraining> {
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
    return {{"scenario", models::to_json(base_->resolved.asked)}, {"plan", said_json(question_.said())}};
  }
  void describe(nlohmann::ordered_json& record) const override {
    const models::Scenario& scenario = base_->resolved.scenario;
    record["inputs"]["scenario"] = models::to_json(scenario);
    if (scenario.model.hidden > 0) add_model(record, scenario);
  }

  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1; }
  SweepAsker asker(const models::Points& points) const override;

 private:
  QuestionOptions options_;
  PlanQuestion question_;
  std::optional<Base> base_;
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
  refuse_beside_axes(question_.said(), points);
  options_.say_unsaid("scope", "step");
  if (options_.searches()) throw InputError("--search: found beside a search of plans, expected one of them");
  base_ = Base::of(options_.question(common), common, false);
  [[maybe_unused]] const Asker settable(*base_, scenario_axes(points));
  const auto is_axis = [&](std::string_view name) {
    return std::ranges::any_of(points.paths(), [&](const ScenarioPath& path) { return path.top() == name; });
  };
  if (base_->resolved.scenario.model.hidden == 0 && !is_axis("model"))
    throw InputError("sweep plan: found no model, expected --model NAME or an axis model");
  if (question_.tokens().empty() && !is_axis("tokens"))
    throw InputError("sweep plan: found no --tokens, expected how many are trained on, such as 15T");
  set_rows(format, points, rows_of(question_.prices(base_->resolved.scenario).currency));
}

void PlanSweep::read_inputs(const models::Points& points) const {
  question_.read_inputs();
  read_named(*base_, points, [](const ScenarioPath& path) { return !of_plan(path); });
  for_each_input(points, [&](const ScenarioPath& path, const PathValue& value) {
    PlanQuestion changed = question_;
    if (changed.say(path.path, value.text)) changed.read_inputs();
  });
}

SweepAsker PlanSweep::asker(const models::Points& points) const {
  return [this, &points,
          changes = models::Changes(base_->question, scenario_axes(points), Origin::said("--grid"))](
             const std::vector<PathValue>& values) mutable {
    PlanQuestion question = question_;
    std::vector<PathValue> of_scenario;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!question.say(points.paths()[i].path, values[i].text)) of_scenario.push_back(values[i]);
    std::string batch;
    models::RunQuestion q = question.question(base_->with(changes.make(of_scenario)), batch);
    // A row contains one plan, and points share the threads.
    q.upgrades = q.lower_precision = false;
    q.threads = 1;
    return std::vector{row_of(models::plan_run(q).plans.front())};
  };
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
  shape.not_best = "as the deadline or the budget is not surely kept";
  shape.shown = {"plan.cluster", "plan.gpus", "plan.days",       "plan.cost", "plan.tp",
                 "plan.pp",      "plan.ep",   "plan.dispatcher", "plan.mfu"};
  return shape;
}

}  // namespace

const ResultSchema kRows("sweep-plan-row", [] {
  const std::vector<SweepColumn> all = rows_of("").columns;
  return row_schema("a line of results.jsonl of `sweep plan`", all, all);
});

std::unique_ptr<SweepKind> sweep_of_plans() { return std::make_unique<PlanSweep>(); }

}  // namespace moesim::tools
