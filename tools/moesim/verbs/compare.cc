// `moesim compare`: the fastest dispatcher for a model on a cluster, its lead, its probability, and the
// reason.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/units.h"
#include "models/answers/answer.h"
#include "models/answers/training_run.h"
#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/around.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/normal.h"
#include "tools/moesim/questions/plan_question.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/argument_checks.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/explain_path.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/show/training_run.h"
#include "tools/moesim/verbs/compare_machines.h"
#include "tools/moesim/verbs/replay_answer.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

struct CompareOptions {
  QuestionOptions scenario;
  Anchoring anchoring;
  std::string detail, timeline, report, arguments, version, tokens, no_slower_than, recorded_on,
      timing = "calibrated";
  TimelineOptions shown;
  bool explain = false;
  int draws = models::AnswerOptions{}.draws;
};

// Returns a whole training with the winner's plan.
std::optional<models::PricedTraining> training_of(const Comparison& c, models::RunQuestion& q,
                                                  const std::string& tokens) {
  if (tokens.empty() || !c.winner()) return std::nullopt;
  q.tokens = models::parse_count("--tokens", tokens);
  q.prices = PlanQuestion::prices(*c.scenario);
  q.ownership = c.scenario->ownership;
  if (!models::has_price(q.prices, q.ownership, *c.scenario->cluster))
    q.prices = models::PriceTable::gpu_hours();
  q.prices.currency = models::currency_of(q.prices, q.ownership);
  return models::judge_run(
      q, std::make_shared<const models::Scenario>(with_dispatcher(*c.scenario, c.winner()->dispatcher)),
      *c.winner());
}

int compare_recording(const CompareOptions& o, const CLI::App& verb, const CommonOptions& common) {
  o.anchoring.refuse_measured("a recording");
  refuse_without_effect(verb, "a recording", "a scenario",
                        {"--recorded-on", "--timing", "--timeline", "--timeline-ranks",
                         "--timeline-microbatches", "--explain", "--report"});
  ReplayOptions replayed;
  replayed.folders = {o.scenario.file()};
  replayed.question = RecordingOptions(o.scenario, o.draws);
  replayed.question.say("timing", o.timing);
  replayed.question.say("recorded-on", o.recorded_on);
  replayed.tolerance = o.anchoring.tolerance();
  replayed.timeline = o.timeline;
  replayed.report = o.report;
  replayed.shown = o.shown;
  replayed.explain = o.explain;
  return run_replay(replayed, common);
}

int compare_clusters(const CompareOptions& o, const CLI::App& verb, const std::vector<std::string>& clusters,
                     const CommonOptions& common) {
  o.anchoring.refuse_measured("several clusters");
  refuse_without_effect(verb, "several clusters", "one", {"--search", "--with", "--by-running"});
  models::AnswerOptions options;
  options.draws = o.draws;
  options.tolerance = o.anchoring.tolerance();
  return compare_machines(o.scenario, clusters, options, common);
}

// The answer, with what is printed beside it.
struct Compared {
  models::Resolved resolved;
  models::Comparison c;
  models::RunQuestion training;
  std::optional<models::PricedTraining> run;
  std::optional<Verdict> verdict;         // on a run that was measured
  std::optional<JobFramework> framework;  // of the winner's arguments
  int version = 0;                        // framework_version()
  Detail detail = Detail::kNone;

  models::Scenario winning_plan() const { return with_dispatcher(*c.scenario, c.winner()->dispatcher); }
  std::optional<FrameworkArguments> arguments() const {
    if (!framework || !c.winner()) return std::nullopt;
    return FrameworkArguments{arguments_of(winning_plan(), *framework, version), *framework};
  }
};

Columns<Compared> columns_of(Of<Compared>) {
  Columns<Compared> all;
  all.add(columns_of(Of<ComparisonResult>{}), [](const Compared& one) {
    return ComparisonResult{one.c, one.detail, {}};
  });
  return all.add(
      {{"plan_chosen?",
        {{"options", [](const Compared& one) { return one.resolved.chosen.options; }, "that say the same"},
         {"because", [](const Compared& one) { return one.resolved.chosen.because; }}},
        "the parts of the plan that were not given and were chosen",
        [](const Compared& one) { return !one.resolved.chosen.options.empty(); }},
       {"verdict?", &Compared::verdict, "whether that run is normal, and if not, why"},
       {"training?",
        {{"tokens", [](const Compared& one) { return one.training.tokens; }},
         {"gpus", [](const Compared& one) { return one.run->gpus; }},
         {"days", [](const Compared& one) { return one.run->days; }},
         {"cost", [](const Compared& one) { return one.run->cost; }}},
        "with --tokens: a whole training with the winner's plan",
        [](const Compared& one) { return one.run.has_value(); }},
       {"arguments?", &Compared::arguments, "of the winner's plan, with --arguments"}});
}

const ResultSchema kSchema("compare", "compare", schema_of<Compared>);
const ResultSchema kUnexplained("compare", "compare --measured", schema_of_unexplained);

ordered_json result_of(const Compared& answer, const CommonOptions& common) {
  ordered_json result = envelope("compare", describe_inputs(common, *answer.c.scenario), answer.c.warnings);
  result.update(json_of(answer));
  if (answer.verdict && !answer.c.anchor->explained) result["answer"] = answer.verdict->sentence;
  return result;
}

void print_screen(Compared& answer, bool explain) {
  models::Comparison& c = answer.c;
  if (answer.verdict) {
    print_answer(answer.verdict->sentence);
    if (const std::string causes = verdict_text(*answer.verdict); !causes.empty()) print(causes + "\n");
    if (!c.anchor->explained) print_text("The table is a forecast of a run that has nothing of this.\n");
  }
  print_comparison(c, answer.detail, explain, chosen_text(answer.resolved));
  if (c.anchor) print("\n" + anchor_text(c));
  if (answer.run) print(training_text(answer.training, *answer.run) + "\n");
  if (explain)
    for (const models::Answer& one : c.answers)
      if (one.ok()) print("\n" + critical_path_text(one));
  if (answer.framework && c.winner())
    print(plan_arguments_text(answer.winning_plan(), *answer.framework, answer.version));
  // print_comparison() printed the resolution notes; drop them from the warnings.
  std::erase_if(c.warnings, [&](const std::string& warning) {
    return std::ranges::find(answer.resolved.notes, warning) != answer.resolved.notes.end();
  });
  if (!explain) c.warnings = to_act_on(c.warnings, *c.scenario->cluster, c.answers);
}

// Judges the first whole run that was measured.
std::optional<Verdict> verdict_of(const Base& base, const models::Comparison& c, double slack) {
  if (!c.anchor) return std::nullopt;
  for (std::size_t k = 0; k < c.anchor->measured.size(); ++k) {
    const models::Measured& run = c.anchor->measured[k];
    const auto at = std::ranges::find(c.answers, run.dispatcher, &models::Answer::dispatcher);
    if (!run.layer && at != c.answers.end())
      return judge_run(base, c, *at, c.anchor->before[k], run.us, {}, slack);
  }
  return std::nullopt;
}

// Leaves out dispatchers with which the framework does not start this plan, if it does with another.
void leave_out_refused(models::Scenario& s, JobFramework framework, int version,
                       std::vector<std::string>& told) {
  std::vector<models::DispatcherSpec> left;
  std::vector<std::string> why;
  for (const models::DispatcherSpec& one : s.dispatchers)
    if (const std::string refusal = refusal_of(with_dispatcher(s, one.text()), framework, version);
        refusal.empty())
      left.push_back(one);
    else
      why.push_back(
          fmt::format("left out: {}, as {} does not start with {}", one.text(), name_of(framework), refusal));
  if (left.empty() || why.empty()) return;
  s.dispatchers = left;
  told.insert(told.end(), why.begin(), why.end());
}

int run_compare(const CompareOptions& o, const CLI::App& verb, const CommonOptions& common) {
  if (is_folder(o.scenario.file())) return compare_recording(o, verb, common);
  if (!o.recorded_on.empty()) throw InputError("--recorded-on: found no recording, expected one");
  if (const std::vector<std::string> clusters = several_clusters(o.scenario.said("cluster"));
      !clusters.empty())
    return compare_clusters(o, verb, clusters, common);
  const auto loaded = o.scenario.load(common);
  const Question& question = loaded.question;
  check_report(o.report);
  double slack = kSlowerThanNormal;
  if (!o.no_slower_than.empty()) {
    slack = parse_fraction(o.no_slower_than);
    if (!o.anchoring.measured())
      throw InputError("--no-slower-than: found without a run, expected --measured or --log");
  }
  if (o.explain && common.format != Format::kTable)
    throw InputError("compare: found --explain with --format, expected the table: it explains in sentences");
  Compared answer;
  answer.detail = parse_detail(o.detail);
  if (!o.arguments.empty()) answer.framework.emplace(framework_named(o.arguments));
  if (!o.version.empty()) {
    if (answer.framework != JobFramework::kMegatron && answer.framework != JobFramework::kNemo)
      throw InputError(
          "compare: found --framework-version, expected it beside --arguments megatron or nemo, whose rules have versions");
    answer.version = framework_version(o.version);
  }
  if (answer.framework && common.format == Format::kCsv)
    throw InputError("compare: found --arguments with --format csv, expected table or json");
  const TimelineBounds bounds = o.shown.bounds(kTimelineSlices, !(o.timeline.empty() && o.report.empty()));
  // Whether the job as it is starts, before what moesim itself may not take.
  const bool same =
      answer.framework && loaded.job && rules_of(loaded.job->framework) == rules_of(*answer.framework);
  if (same) check_start(*loaded.job, *answer.framework, answer.version, nullptr);
  const Base base = Base::of(question, common, true, answer.framework);
  models::Resolved& resolved = answer.resolved = base.resolved;
  std::vector<std::string> told;
  if (same) told = check_start(*loaded.job, *answer.framework, answer.version, &resolved.scenario);
  if (answer.framework) leave_out_refused(resolved.scenario, *answer.framework, answer.version, told);
  if (!o.tokens.empty()) {
    if (!resolved.scenario.is_step())
      throw InputError("--tokens: found with scope layer, expected step: a training is made of steps");
    models::take_usual_failures(resolved.scenario);
    PlanQuestion::take_listed_rent(resolved.scenario);
  }
  models::AnswerOptions options;
  options.suggest = true;
  options.draws = o.draws;
  options.flow = o.timing == "flow";
  options.tolerance = o.anchoring.tolerance();
  options.trace = common.format == Format::kJson || !o.timeline.empty() || !o.report.empty() ||
                  answer.detail != Detail::kNone || o.explain;
  options.measured = o.anchoring.of(resolved.scenario);
  models::Comparison& c = answer.c = ask(std::move(resolved.scenario), options);
  answer.verdict = verdict_of(base, c, slack);
  answer.run = training_of(c, answer.training, o.tokens);
  name_measurement(c, options);
  if (!o.timeline.empty()) write_file(o.timeline, comparison_timeline(c, common, bounds));
  if (!o.report.empty())
    write_file(o.report, comparison_report(c, common, bounds,
                                           c.decision.runner_up >= 0 ? map_around(base, common.threads)
                                                                     : std::vector<Around>()));
  c.warnings.insert(c.warnings.begin(), told.begin(), told.end());
  if (common.format == Format::kJson)
    print_json(result_of(answer, common));
  else if (common.format == Format::kCsv)
    print(comparison_csv(c, answer.detail));
  else
    print_screen(answer, o.explain);
  warn_below(common, c.warnings, true, o.explain || !told.empty());
  return !o.no_slower_than.empty() && answer.verdict && !answer.verdict->normal ? 1 : 0;
}

}  // namespace

Verb compare_verb() {
  return {
      "compare",
      "which dispatcher is fastest for this model on this cluster, by how much, how sure, and why",
      "  moesim compare --model qwen3-30b-a3b --cluster h100 --gpus 32 --ep 8 --routing zipf:0.5\n"
      "  moesim compare scenario.json --dispatcher all --detail messages --format json",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<CompareOptions>();
        o->scenario.declare(app);
        o->anchoring.declare(app);
        constexpr const char* kGroup = "Question";
        app.add_option("--no-slower-than", o->no_slower_than,
                       "With --measured or --log: exit 1 where the run is slower than the forecast's "
                       "interval by more than this")
            ->type_name("PERCENT")
            ->group(kGroup);
        app.add_option("--detail", o->detail,
                       "times (parts of the time), messages, operations (of the rank that ends last), ranks "
                       "or memory, "
                       "beside the summary")
            ->check(CLI::IsMember({"times", "messages", "operations", "ranks", "memory"}))
            ->group(kGroup);
        app.add_option(
               "--timing", o->timing,
               "calibrated, or flow: all groups of the job at once on the cluster's fabric [calibrated]")
            ->check(CLI::IsMember({"calibrated", "flow"}))
            ->group(kGroup);
        app.add_option("--timeline", o->timeline, "Write what every rank does when, as Chrome trace events")
            ->group(kGroup);
        o->shown.declare(app);
        declare_report(app, o->report);
        app.add_option("--draws", o->draws, "Draws of the profile for intervals; 0 for none [48]")
            ->check(CLI::Range(0, models::kMostDraws))
            ->group(kGroup);
        app.add_option("--arguments", o->arguments, "The winner's plan as arguments of a framework")
            ->type_name("megatron|torchtitan|deepspeed|nemo")
            ->group(kGroup);
        app.add_option("--framework-version", o->version,
                       "Megatron-Core's, by whose rules the arguments are checked: 0.16 [newest]")
            ->group(kGroup);
        app.add_option("--tokens", o->tokens, "Scope step: what training on so many takes: 15T")
            ->group(kGroup);
        app.add_flag("--explain", o->explain,
                     "The last rank's work by dispatcher; all dispatchers and warnings")
            ->group(kGroup);
        declare_recorded_on(app, o->recorded_on);
        return [o, verb = &app](const CommonOptions& common) { return run_compare(*o, *verb, common); };
      },
      {"--model", "--cluster", "--gpus", "--scope", "--tp", "--pp", "--ep", "--dispatcher", "--report",
       "--explain"}};
}

}  // namespace moesim::tools
