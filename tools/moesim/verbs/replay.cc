// `moesim replay`: the time of a recorded job on a topology.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "models/answers/sentences.h"
#include "models/hardware/cluster_fabric.h"
#include "models/question/question.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/timeline_json.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/replay_answer.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

using replay::RecordingForecast;

RecordingForecast ask(const ReplayOptions& options, const Recordings& recordings,
                      replay::RecordingQuestion question, const CommonOptions& common) {
  std::optional<replay::RecordingQuestion> before;
  if (options.before) {
    before = options.before->question(recordings, options.before->over(question_of(recordings), common));
    before->draws = 0;
    question.beside = {replay::cluster_of(*before, recordings.jobs().front().topology)};
  }
  RecordingForecast answer = ask_recording(recordings, question);
  answer.tolerance = options.tolerance;
  if (before) {
    const RecordingForecast found = ask_recording(recordings, *before);
    answer.before.emplace().what = fmt::format("{}, {} microbatches, on {}", found.iteration.topology.str(),
                                               found.microbatches, found.cluster.name);
    const models::Forecast& forecast = found;
    static_cast<models::Forecast&>(*answer.before) = forecast;
  }
  if (!question.flow && models::has_own_fabric(answer.cluster))
    answer.warnings.emplace_back(
        "the cluster's fabric is not seen by calibrated timing, which knows no contention; --timing flow "
        "does");
  const auto read_warnings = recordings.warnings();
  answer.warnings.insert(answer.warnings.begin(), read_warnings.begin(), read_warnings.end());
  return answer;
}

// The iteration with the memory of every rank that is shown.
TimelineView forecast_view(const RecordingForecast& answer, const TimelineBounds& bounds) {
  TimelineView view = timeline_view("forecast", answer.iteration, bounds);
  if (!answer.held) return view;
  std::set<int> shown;
  for (const TimelineView::Track& track : view.tracks) shown.insert(track.rank);
  for (const int rank : shown) {
    TimelineView::Counter memory{rank, "memory [GB]", {}};
    for (const auto& [us, bytes] : answer.held->over_time(answer.iteration, rank))
      memory.points.emplace_back(std::llround(us * 1e6), bytes * 1e-9);
    view.counters.push_back(std::move(memory));
  }
  return view;
}

void write_files(const ReplayOptions& options, const RecordingForecast& answer, const TimelineBounds& bounds,
                 const nlohmann::ordered_json& inputs) {
  if (!options.timeline.empty())
    write_file(options.timeline, timeline_json(std::vector{forecast_view(answer, bounds)}, inputs));
  if (options.report.empty()) return;
  ReportExtras extras;
  TimelineBounds fewer = bounds;
  fewer.most_slices = kReportSlices;
  extras.timelines.push_back(forecast_view(answer, fewer));
  extras.matrices.push_back(traffic_matrix("iteration", answer.iteration.graph));
  extras.gpus_per_node = answer.cluster.gpus_per_node;
  write_report(options.report, "replay", replay_json(answer, inputs, false, true), extras);
}

// A dispatcher of a recording: its time, and what else is known.
Columns<models::Answer> dispatcher_columns() {
  using A = models::Answer;
  const auto us = [](double models::Estimate::*of) { return [of](const A& a) { return a.time_us.*of; }; };
  const auto held = [](const A& a) { return a.memory.max_bytes > 0; };
  const auto peak = [](const A& a) { return a.memory.max_bytes; };
  const auto tokens = [](const A& a) { return where(a.tokens > 0, a.tokens_per_s_per_gpu()); };
  return {{"dispatcher", &A::dispatcher, "", "dispatcher"},
          {"time_us", &A::time_us},
          {"", us(&models::Estimate::value), "", {"iteration ms", 2, 1e-3}},
          {"", us(&models::Estimate::low), "", {"low", 2, 1e-3}},
          {"", us(&models::Estimate::high), "", {"high", 2, 1e-3}},
          {"tokens_per_s_per_gpu?", tokens},
          {"", tokens, "", {"tokens/s/GPU", 1}},
          {"peak_memory_bytes?", {{"max", peak}}, "", held},
          {"", [=](const A& a) { return where(held(a), peak(a)); }, "", {"memory GB", 2, 1e-9}}};
}

Columns<models::Comparison> compared_columns() {
  using C = models::Comparison;
  using Rule = std::pair<std::string, std::string>;
  return Columns<C>()
      .list("scenarios", dispatcher_columns(), &C::answers)
      .add({{"recommendation", recommendation()}, {"answer", models::sentence}, {"because", models::because}})
      .list("excluded", Columns<Rule>{{"dispatcher", &Rule::first}, {"rule", &Rule::second}}, &C::excluded);
}

nlohmann::ordered_json inputs_of(const replay::RecordingQuestion& question, const CommonOptions& common) {
  nlohmann::ordered_json inputs = describe_inputs(common);
  inputs["settings"] = models::settings_json(question.said);
  return inputs;
}

// Compares the recorded dispatcher with each of several others.
int compare_dispatchers(const ReplayOptions& options, const Recordings& recordings,
                        const replay::RecordingQuestion& question, const CommonOptions& common) {
  if (!options.timeline.empty() || !options.report.empty() || options.explain || options.before)
    throw InputError(
        "found --timeline, --report, --explain or --set with several dispatchers of a recording, expected one "
        "dispatcher");
  std::vector<RecordingForecast> all;
  std::vector<std::pair<std::string, std::string>> excluded;
  for (const models::DispatcherSpec& spec : question.said.dispatchers) {
    try {
      replay::RecordingQuestion one = question;
      one.said.dispatchers = {spec};
      all.push_back(ask(options, recordings, one, common));
    } catch (const InputError& error) {
      if (!question.said.all_dispatchers) throw;
      const std::string before = fmt::format("{}: dispatcher {}: ", spec.origin, spec.text());
      const std::string why = error.what();
      excluded.emplace_back(spec.text(), why.starts_with(before) ? why.substr(before.size()) : why);
    }
  }
  auto c = replay::compared(all);
  if (!c)
    throw InputError(excluded.empty() ? "--dispatcher: found the recorded one alone, expected another"
                                      : excluded.front().second);
  c->excluded = std::move(excluded);
  std::vector<std::string> warnings;
  for (const RecordingForecast& f : all)
    models::add_new(warnings, f.notes), models::add_new(warnings, f.warnings);
  if (common.format == Format::kJson) {
    print_result("compare", inputs_of(question, common), compared_columns().json(*c), warnings);
  } else if (common.format == Format::kCsv) {
    print(csv_of(compared_columns().json(*c).at("scenarios")));
  } else {
    print_answer(models::sentence(*c));
    print_text(models::because(*c) + "\n");
    print("\n" + table_of(dispatcher_columns(), c->answers).text());
    for (const auto& [dispatcher, rule] : c->excluded)
      print_text(fmt::format("not {}: {}\n", dispatcher, rule));
  }
  warn_below(common, warnings);
  return 0;
}

}  // namespace

int run_replay(const ReplayOptions& options, const CommonOptions& common) {
  check_report(options.report);
  if (options.explain && common.format == Format::kCsv)
    throw InputError("replay: found --explain with --format csv, expected table or json");
  const TimelineBounds bounds =
      options.shown.bounds(kTimelineSlices, !(options.timeline.empty() && options.report.empty()));
  Recordings recordings;
  for (const std::string& folder : options.folders) recordings.add(folder);
  replay::RecordingQuestion question =
      options.question.question(recordings, options.question.over(question_of(recordings), common));
  question.memory = true;
  question.threads = common.threads;
  if (question.changes("dispatcher") && question.said.dispatchers.size() > 1)
    return compare_dispatchers(options, recordings, question, common);
  question.attribution = true;
  question.effect_gains = options.explain;
  RecordingForecast answer = ask(options, recordings, question, common);
  nlohmann::ordered_json inputs = inputs_of(question, common);
  inputs["cluster"] = answer.cluster.name;
  // Notes that decide whether the answer means anything come first.
  std::erase_if(answer.warnings, [&](const std::string& warning) {
    return std::ranges::find(answer.notes, warning) != answer.notes.end();
  });
  answer.warnings.insert(answer.warnings.begin(), answer.notes.begin(), answer.notes.end());
  write_files(options, answer, bounds, inputs);
  if (common.format == Format::kJson) {
    print_json(replay_json(answer, inputs, options.question.says_model(), options.explain));
    return 0;
  }
  if (common.format == Format::kCsv) {
    print(rank_csv(answer));
    warn_below(common, answer.warnings);
    return 0;
  }
  print_replay(answer, recordings.jobs().front().topology, options.explain);
  // The notes stand above the answer.
  answer.warnings.erase(answer.warnings.begin(),
                        answer.warnings.begin() + static_cast<std::ptrdiff_t>(answer.notes.size()));
  warn_below(common, options.explain ? answer.warnings : to_act_on(answer.warnings, answer.cluster, {}), true,
             options.explain);
  return 0;
}

Verb replay_verb() {
  return {"replay",
          "what a recorded job takes on a topology",
          "  moesim replay rec/scaling --cluster echo-h800x2 --microbatches 8 --dispatcher allgather\n"
          "  moesim replay rec/realistic --cluster echo-h800x2 --timeline iteration.json",
          [](CLI::App& app) -> Run {
            auto options = std::make_shared<ReplayOptions>();
            app.add_option("recording", options->folders,
                           "folder of rank files; several scaling passes are pooled")
                ->required()
                ->type_name("DIR");
            options->question.declare(app);
            options->shown.declare(app);
            declare_report(app, options->report);
            app.add_option("--timeline", options->timeline, "write the timeline as Chrome trace JSON")
                ->type_name("FILE");
            app.add_flag("--explain", options->explain,
                         "all ranks and operations, the critical path, constants with their source");
            return [options](const CommonOptions& common) { return run_replay(*options, common); };
          },
          {"--cluster", "--dispatcher", "--timing", "--seq", "--ep", "--dp", "--microbatches", "--timeline",
           "--report", "--explain"}};
}

}  // namespace moesim::tools
