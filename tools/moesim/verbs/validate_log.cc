#include <fmt/format.h>

#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/statistics.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/normal.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/load_job.h"
#include "tools/moesim/read/training_log.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/validate.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

// The job of the log on its machine; `scenario` has the dispatcher that ran alone.
struct LoggedJob {
  Base base;
  models::Scenario scenario;
};

LoggedJob logged_job(const LogValidation& o, const TrainingLog& log, const CommonOptions& common) {
  std::optional<Job> job;
  if (o.job.empty()) {
    if (!log.arguments)
      throw InputError(SourcePlace{o.log}, "no arguments", "--job FILE, the job's arguments or a scenario");
    if (!o.with.empty()) throw InputError("--with: found no --job, expected one: it adds to its arguments");
    job = read_job(*log.arguments, JobFramework::kMegatron);
  } else if (const auto framework = framework_of_file(o.job)) {
    job = load_job(o.job, *framework, o.with);
  }
  Question q = job ? question_of(*job) : question_of_file(o.job, common);
  // The steps give the batch, where the job does not.
  const bool one_microbatch = !q.said.gave("parallel.microbatches") ||
                              q.said.origin_of("parallel.microbatches").kind == Origin::Kind::kRecipe;
  if (log.global_batch > 0 && !q.said.batch.given() && one_microbatch) {
    q.said.batch.sequences = log.global_batch;
    q.said.give("parallel.global_batch", {Origin::Kind::kLog, log.batch_place.str()});
    q.said.given.reset(models::index_of(*models::find_field("parallel.microbatches")));
  }
  if (!o.cluster.empty()) {
    q.said.set_cluster(o.cluster);
    q.said.give("cluster", Origin::said("--cluster"));
  }
  if (!q.said.cluster)
    throw InputError("validate: found no --cluster, expected the machine that the log is of");
  if (!q.said.is_step())
    throw InputError(SourcePlace{o.job}, "scope layer", "scope step: a log has whole steps");
  // The job's own GPUs, where it gives them; the cluster may be larger.
  if (models::Parallel& p = q.said.parallel; job && job->gpus.count > 0 && !q.said.gave("parallel.dp"))
    if (const std::int64_t ranks = p.tp * p.cp * p.pp; job->gpus.count % ranks == 0) {
      p.dp = job->gpus.count / ranks;
      q.said.give("parallel.dp", Origin::file(q.job->file));
    }
  Base base = Base::of(std::move(q), common);
  if (!base.resolved.error.empty()) throw InputError(base.resolved.error);
  models::Scenario s = base.resolved.scenario;
  // The dispatcher that ran, not those that it could have been.
  s.dispatchers = base.question.said.dispatchers;
  models::name_dispatchers(s);
  if (s.model.experts > 0 && s.dispatchers.size() != 1)
    throw InputError(
        fmt::format("dispatcher: found {}, expected the one that the job ran", s.dispatchers.size()));
  s.resolve();
  s.model.remarks.insert(s.model.remarks.end(), log.notes.begin(), log.notes.end());
  return {std::move(base), std::move(s)};
}

// The steps of a log against their forecast.
struct JudgedLog {
  ordered_json model;
  Verdict verdict;
  std::size_t logged, left_out;
  double p10, p50, p90;
  models::Estimate forecast;
  models::StepQuantiles steps;
  double error;
  bool inside;
};

Columns<JudgedLog> columns_of(Of<JudgedLog>) {
  using L = JudgedLog;
  return {{"model", &L::model, as_in("model-summary.schema.json")},
          {"verdict", &L::verdict, "whether the run is normal, and causes that would explain it"},
          {"steps", {{"logged", &L::logged}, {"left_out", &L::left_out, "at the start"}}},
          {"measured_us", {{"p10", &L::p10}, {"p50", &L::p50}, {"p90", &L::p90}}},
          {"forecast_us", &L::forecast},
          {"step_time_us", &L::steps, "how forecast steps vary"},
          {"error", &L::error, "forecast / measured median - 1"},
          {"inside_interval", &L::inside}};
}

const ResultSchema kSchema("validate-log", "validate --log", schema_of<JudgedLog>);

}  // namespace

int validate_log(const LogValidation& o, const CommonOptions& common) {
  const std::string text = read_file(o.log, kMaxTrainingLogBytes);
  const TrainingLog log = read_training_log(text, o.log);
  const auto [base, scenario] = logged_job(o, log, common);
  const std::vector<double> all = step_seconds(log, scenario), kept = steady(all);
  models::AnswerOptions options;
  options.draws = o.draws;
  const models::Comparison c = ask(scenario, options);
  const models::Answer& a = c.answers.front();
  if (!a.ok()) throw InputError(fmt::format("dispatcher {}: {}", a.dispatcher, a.error));
  const double p10 = quantile_of(kept, 0.1) * 1e6, p50 = quantile_of(kept, 0.5) * 1e6,
               p90 = quantile_of(kept, 0.9) * 1e6;
  const double error = a.time_us.value / p50 - 1;
  const bool inside = a.time_us.low <= p50 && p50 <= a.time_us.high;
  const Verdict verdict = judge_run(base, c, a, a.time_us, p50, text);
  if (common.format == Format::kJson) {
    const JudgedLog judged{models::model_summary(models::asked_model(*c.scenario)),
                           verdict,
                           all.size(),
                           all.size() - kept.size(),
                           p10,
                           p50,
                           p90,
                           a.time_us,
                           a.step_time,
                           error,
                           inside};
    print_result("validate", describe_inputs(common, *c.scenario), json_of(judged), c.warnings);
  } else {
    for (const std::string& warning : c.warnings) warn(common, warning);
    Table table({{"", Table::Align::kLeft}, {"step [ms]"}, {"low"}, {"high"}, {"p90 / p50"}});
    const auto ms = [](double us) { return fmt::format("{:.1f}", us * 1e-3); };
    const auto ratio = [](double over, double under) {
      return under > 0 ? fmt::format("{:.3f}", over / under) : "-";
    };
    table.row({"measured", ms(p50), ms(p10), ms(p90), ratio(p90, p50)});
    table.row({"forecast", ms(a.time_us.value), ms(a.time_us.low), ms(a.time_us.high),
               ratio(a.step_time.p90, a.step_time.p50)});
    if (common.format == Format::kCsv) {
      print(table.csv());
    } else {
      print_answer(verdict.sentence);
      print("\n" + models::model_text(models::asked_model(*c.scenario)) + "\n");
      print(fmt::format(
          "{} steps of {}, without {} at the start; low and high: the tenth and the nine tenths of them, "
          "and the forecast's 90 % interval\n\n",
          kept.size(), o.log, all.size() - kept.size()));
      print(table.text());
      print(fmt::format("\nthe forecast is off by {}; the measured median lies {} its interval\n",
                        percent(error, 1, true), inside ? "inside of" : "outside of"));
      if (const std::string causes = verdict_text(verdict); !causes.empty()) print("\n" + causes);
    }
  }
  return (o.judge && !verdict.normal) || (o.max_error > 0 && std::abs(error) > o.max_error) ? 1 : 0;
}

}  // namespace moesim::tools
