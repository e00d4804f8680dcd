// `moesim replay`: the time of a recorded job on a topology.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "models/hardware/cluster_fabric.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/questions/replay_question.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/timeline_json.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/replay_answer.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct ReplayOptions {
  std::vector<std::string> folders;
  ReplayQuestion question{32};
  std::string timeline, report;
  TimelineOptions shown;
  std::uint64_t seed = 1;
  bool explain = false;
};

using replay::RecordingForecast;

RecordingForecast ask(const ReplayOptions& options, const Recordings& recordings,
                      nlohmann::ordered_json& inputs) {
  replay::RecordingQuestion question = options.question.question(options.seed);
  question.attribution = true;
  question.memory = true;
  question.effect_gains = options.explain;
  RecordingForecast answer = ask_recording(recordings, question);
  inputs["cluster"] = answer.cluster.name;
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
                 const nlohmann::ordered_json& inputs, const models::PriceTable& prices) {
  if (!options.timeline.empty())
    write_file(options.timeline, timeline_json(std::vector{forecast_view(answer, bounds)}, inputs));
  if (options.report.empty()) return;
  ReportExtras extras;
  TimelineBounds fewer = bounds;
  fewer.most_slices = kReportSlices;
  extras.timelines.push_back(forecast_view(answer, fewer));
  extras.matrices.push_back(traffic_matrix("iteration", answer.iteration.graph));
  extras.gpus_per_node = answer.cluster.gpus_per_node;
  write_report(options.report, "replay", replay_json(answer, inputs, prices, "", true), extras);
}

int run(const ReplayOptions& options, const CommonOptions& common) {
  check_report(options.report);
  const models::PriceTable prices = options.question.prices();
  if (options.explain && common.format == Format::kCsv)
    throw InputError("replay: found --explain with --format csv, expected table or json");
  const TimelineBounds bounds = options.shown.bounds(kTimelineSlices);
  nlohmann::ordered_json inputs = describe_inputs(common);
  Recordings recordings;
  for (const std::string& folder : options.folders) recordings.add(folder);
  RecordingForecast answer = ask(options, recordings, inputs);
  // Notes that decide whether the answer means anything come first.
  std::erase_if(answer.warnings, [&](const std::string& warning) {
    return std::ranges::find(answer.notes, warning) != answer.notes.end();
  });
  answer.warnings.insert(answer.warnings.begin(), answer.notes.begin(), answer.notes.end());
  inputs["files"] = files_read();
  write_files(options, answer, bounds, inputs, prices);
  if (common.format == Format::kJson) {
    print_json(replay_json(answer, inputs, prices, options.question.model(), options.explain));
    return 0;
  }
  if (common.format == Format::kCsv) {
    print(rank_table(answer, prices).csv());
    warn_below(common, answer.warnings);
    return 0;
  }
  print_replay(answer, recordings.jobs().front().topology, prices, options.explain);
  // The notes stand above the answer.
  answer.warnings.erase(answer.warnings.begin(),
                        answer.warnings.begin() + static_cast<std::ptrdiff_t>(answer.notes.size()));
  warn_below(common, options.explain ? answer.warnings : to_act_on(answer.warnings, answer.cluster, {}), true,
             options.explain);
  return 0;
}

}  // namespace

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
            return [options](const CommonOptions& common) {
              options->seed = common.seed;
              return run(*options, common);
            };
          },
          {"--cluster", "--dispatcher", "--timing", "--seq", "--ep", "--dp", "--microbatches", "--timeline",
           "--report", "--explain"}};
}

}  // namespace moesim::tools
