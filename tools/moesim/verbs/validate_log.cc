#include "tools/moesim/verbs/validate_log.h"

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
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/load_job.h"
#include "tools/moesim/read/training_log.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

// Returns the job of the log on its machine.
models::Scenario logged_job(const LogValidation& o, const TrainingLog& log, const CommonOptions& common) {
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
    q.said.give("parallel.global_batch", {Origin::Kind::kLog, SourcePlace{o.log, log.batch_line}.str()});
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
  if (models::Parallel& p = q.said.parallel; job && job->gpus && !q.said.gave("parallel.dp"))
    if (const std::int64_t ranks = p.tp * p.cp * p.pp; *job->gpus % ranks == 0) {
      p.dp = *job->gpus / ranks;
      q.said.give("parallel.dp", Origin::file(q.job->file));
    }
  models::Scenario s = settle(q, common).scenario;
  // The dispatcher that ran, not those that it could have been.
  s.dispatchers = q.said.dispatchers;
  models::name_dispatchers(s);
  if (s.model.experts > 0 && s.dispatchers.size() != 1)
    throw InputError(
        fmt::format("dispatcher: found {}, expected the one that the job ran", s.dispatchers.size()));
  s.resolve();
  const std::int64_t batch = s.parallel.micro_batch * s.parallel.microbatches * s.parallel.dp;
  if (log.global_batch > 0 && batch != log.global_batch)
    throw InputError(SourcePlace{o.log, log.batch_line},
                     fmt::format("a global batch of {} sequences", log.global_batch),
                     fmt::format("the job's {}, of {}", batch, o.job.empty() ? o.log : o.job));
  s.model.remarks.insert(s.model.remarks.end(), log.notes.begin(), log.notes.end());
  return s;
}

}  // namespace

int validate_log(const LogValidation& o, const CommonOptions& common) {
  const TrainingLog log = read_training_log(read_file(o.log, kMaxTrainingLogBytes), o.log);
  const models::Scenario scenario = logged_job(o, log, common);
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
  if (common.format == Format::kJson) {
    ordered_json result = envelope("validate", describe_inputs(common, *c.scenario), c.warnings);
    add_model(result, *c.scenario);
    result["steps"] = {{"logged", all.size()}, {"left_out", all.size() - kept.size()}};
    result["measured_us"] = {{"p10", p10}, {"p50", p50}, {"p90", p90}};
    result["forecast_us"] = estimate_json(a.time_us);
    result["step_time_us"] = {{"p50", a.step_time.p50}, {"p90", a.step_time.p90}, {"p99", a.step_time.p99}};
    result["error"] = error;
    result["inside_interval"] = inside;
    print_json(result);
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
      print(models::model_text(models::asked_model(*c.scenario)) + "\n");
      print(fmt::format(
          "{} steps of {}, without {} at the start; low and high: the tenth and the nine tenths of them, "
          "and the forecast's 90 % interval\n\n",
          kept.size(), o.log, all.size() - kept.size()));
      print(table.text());
      print(fmt::format("\nthe forecast is off by {}; the measured median lies {} its interval\n",
                        percent(error), inside ? "inside of" : "outside of"));
    }
  }
  return o.max_error > 0 && std::abs(error) > o.max_error ? 1 : 0;
}

}  // namespace moesim::tools
