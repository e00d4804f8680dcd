// `moesim validate`: error of a forecast against a measured recording, in total and operation by operation.
#include "replay/run/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/units.h"
#include "models/answers/invariants.h"
#include "models/hardware/cluster.h"
#include "replay/recording/denoise.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/run_summary.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/questions/replay_invariants.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/progress.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/timeline_json.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/validate_decisions.h"
#include "tools/moesim/verbs/validate_known.h"
#include "tools/moesim/verbs/validate_log.h"
#include "tools/moesim/verbs/validate_memory.h"
#include "tools/moesim/verbs/validate_training.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct ValidateOptions {
  std::vector<std::string> forecast;
  std::string measured;
  std::string all;
  std::string cluster = "echo-h800x2";
  JobOptions job;
  std::string max_error;
  std::string only;
  bool anchored = false;
  std::vector<std::string> training, decisions;
  std::string memory, known, detail, leave_out;
  std::string log, log_job, log_cluster;
  std::vector<std::string> with;
  std::string timeline, report;
  TimelineOptions shown;
  std::uint64_t seed = 1;
  int microbatches = 0;
  int draws = 32;
  bool rescale = false;
};

// One row of the answer.
struct Case {
  std::string name;
  std::string pass;
  replay::Validation validation;
  std::vector<std::string> notes;  // shown before everything else
  std::vector<std::string> warnings;
  std::vector<TimelineView> views;  // forecast and measured, where requested
};

// Takes the sizes of the measured job, where the user gave no others.
void take_sizes_of(const traces::NamedTopology& measured, const replay::Topology& topology,
                   const traces::NamedTopology& forecast, replay::JobChange& change) {
  const auto take = [](std::optional<std::int64_t>& mine, std::optional<std::int64_t> other,
                       std::optional<std::int64_t> same) {
    if (!mine && other && other != same) mine = other;
  };
  take(change.seq, measured.seq, forecast.seq);
  take(change.experts, measured.experts, forecast.experts);
  take(change.ep, topology.expert, forecast.ep);
  take(change.dp, topology.dp(), forecast.dp);
  take(change.pp, topology.pp, forecast.pp);
}

// Forecast and measurement side by side.
std::vector<TimelineView> views_of(const replay::Iteration& iteration, const replay::RecordedJob& truth,
                                   const models::Cluster& cluster, const ValidateOptions& options) {
  if (!options.all.empty() || (options.timeline.empty() && options.report.empty())) return {};
  const TimelineBounds bounds = options.shown.bounds(kTimelineSlices / 2);
  return {timeline_view("forecast", iteration, bounds),
          timeline_view("measured", truth, cluster.gpus_per_node, bounds)};
}

Case validate_case(const std::vector<std::string>& forecast, const std::string& measured_folder,
                   const models::Cluster& cluster, const ValidateOptions& options) {
  Recordings recorded;
  for (const std::string& folder : forecast) recorded.add(folder);
  Recordings measured;
  measured.add(measured_folder);
  const replay::RecordedJob& truth = measured.jobs().front();
  if (!truth.realistic)
    throw InputError(SourcePlace{measured_folder}, "a scaling recording",
                     "a realistic one to measure against");
  const replay::RecordedJob& from = recorded.jobs().front();
  const traces::NamedTopology& named = recorded.recording(0).named;
  replay::RecordingQuestion question;
  question.job = options.job.request(options.cluster, options.seed);
  question.job.recorded_there = true;  // --cluster is the job's own
  if (options.rescale) take_sizes_of(measured.recording(0).named, truth.topology, named, question.job.change);
  if (options.job.routing == kMeasuredRouting) {
    const replay::CleanJob shown = replay::denoise(measured.jobs());
    question.job.change.received.emplace();
    for (int e = 0; e < truth.topology.expert; ++e)
      question.job.change.received->push_back(shown.places.at({0, 0, e}).received_rows);
  }
  question.microbatches = options.microbatches;
  if (!from.realistic && options.microbatches == 0) question.microbatches = replay::microbatches_of(truth);
  question.seed = options.seed;
  question.draws = options.draws;
  const replay::RecordingForecast answer = replay::forecast_recording(recorded.jobs(), named, question);
  if (answer.iteration.topology.str() != truth.topology.str())
    throw InputError(SourcePlace{forecast.front()}, "a recording of " + answer.iteration.topology.str(),
                     truth.topology.str() + " as in " + measured_folder + " (--rescale makes it so)");
  Case out;
  out.validation =
      replay::validate(answer.summary, replay::summarize(truth, cluster.gpus_per_node), answer.drawn);
  models::check_possible(forecast.front(), impossible(answer));
  models::check_possible(forecast.front(), impossible(out.validation));
  out.views = views_of(answer.iteration, truth, cluster, options);
  out.notes = answer.notes;
  out.warnings = recorded.warnings();
  out.warnings.insert(out.warnings.end(), answer.warnings.begin(), answer.warnings.end());
  return out;
}

nlohmann::ordered_json triple(const replay::Comparison& comparison) {
  return {{"forecast_us", comparison.forecast_us}, {"measured_us", comparison.measured_us},
          {"error", comparison.error()},           {"low_us", comparison.low_us},
          {"high_us", comparison.high_us},         {"covered", comparison.covered()}};
}

void add_to(nlohmann::ordered_json& out, const replay::Validation& validation) {
  out["iteration"] = triple(validation.iteration);
  out["components"] = nlohmann::ordered_json::object();
  for (const auto& component : validation.components)
    out["components"][std::string(component.name)] = triple(component);
  out["mean_abs_component_error"] = validation.mean_abs_component_error();
}

std::string milliseconds(double us) { return fmt::format("{:.2f}", us / 1e3); }

// Returns one configuration: a row per component.
Table component_table(const Case& one) {
  Table table({{"operation", Table::Align::kLeft},
               {"forecast ms"},
               {"low"},
               {"high"},
               {"measured ms"},
               {"error"},
               {"measured is", Table::Align::kLeft}});
  const auto add = [&](const replay::Comparison& c) {
    table.row({std::string(c.name), milliseconds(c.forecast_us), milliseconds(c.low_us),
               milliseconds(c.high_us), milliseconds(c.measured_us), percent(c.error()),
               c.covered() ? "inside" : "outside the interval"});
  };
  add(one.validation.iteration);
  table.separator();
  for (const auto& component : one.validation.components) add(component);
  return table;
}

// Returns many configurations: a row each, a column per component.
Table overview_table(const std::vector<Case>& cases) {
  std::vector<std::string_view> names;
  for (const Case& one : cases)
    for (const auto& component : one.validation.components)
      if (std::find(names.begin(), names.end(), component.name) == names.end())
        names.push_back(component.name);
  std::vector<Table::Column> columns{{"recording", Table::Align::kLeft},
                                     {"passes", Table::Align::kLeft},
                                     {"forecast ms"},
                                     {"90 % interval"},
                                     {"measured ms"},
                                     {"error"}};
  for (const auto name : names) columns.push_back({std::string(name)});
  Table table(columns);
  for (const Case& one : cases) {
    const auto& iteration = one.validation.iteration;
    std::vector<std::string> row{one.name,
                                 one.pass,
                                 milliseconds(iteration.forecast_us),
                                 fmt::format("{:.1f} .. {:.1f}{}", iteration.low_us / 1e3,
                                             iteration.high_us / 1e3, iteration.covered() ? "" : " !"),
                                 milliseconds(iteration.measured_us),
                                 percent(iteration.error())};
    for (const auto name : names) {
      const auto& components = one.validation.components;
      const auto at =
          std::find_if(components.begin(), components.end(), [&](const auto& c) { return c.name == name; });
      row.push_back(at == components.end() ? "-" : percent(at->error()));
    }
    table.row(std::move(row));
  }
  return table;
}

// Finds folders below `folder`, at any depth, that contain realistic/, ordered by path. `seen` excludes
// repetitions through links.
void find_recorded(const std::filesystem::path& folder, std::set<std::filesystem::path>& seen,
                   std::vector<std::filesystem::path>& found) {
  namespace fs = std::filesystem;
  std::error_code none;  // an unreadable folder counts as empty
  std::vector<fs::path> below;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.is_directory(none)) below.push_back(entry.path());
  std::sort(below.begin(), below.end());
  for (const fs::path& one : below) {
    if (!seen.insert(fs::canonical(one, none)).second) continue;
    if (fs::is_directory(one / "realistic", none))
      found.push_back(one);
    else
      find_recorded(one, seen, found);
  }
}

// Validates folders below `root` that contain realistic/ and scaling*/: each scaling pass alone, then all of
// them pooled.
std::vector<Case> validate_all(const std::string& root, const models::Cluster& cluster,
                               const ValidateOptions& options, const Progress& progress) {
  namespace fs = std::filesystem;
  if (!is_folder(root)) throw InputError(SourcePlace{root}, "no such folder", "a folder of recordings");
  std::error_code none;
  std::set<fs::path> seen{fs::canonical(root, none)};
  std::vector<fs::path> folders;
  find_recorded(root, seen, folders);
  std::vector<Case> cases;
  for (std::size_t f = 0; f < folders.size(); ++f) {
    const fs::path& folder = folders[f];
    if (progress) progress(static_cast<std::int64_t>(f), static_cast<std::int64_t>(folders.size()));
    const std::string name = folder.lexically_relative(root).string();
    if (name.find(options.only) == std::string::npos) continue;
    std::vector<std::string> passes;
    for (const fs::path& entry : entries_of(folder))
      if (is_folder(entry) && entry.filename().string().starts_with("scaling"))
        passes.push_back(entry.string());
    const auto add = [&](const std::vector<std::string>& some, const std::string& pass) {
      Case one = validate_case(some, (folder / "realistic").string(), cluster, options);
      one.name = name;
      one.pass = pass;
      cases.push_back(std::move(one));
    };
    for (const std::string& pass : passes) add({pass}, fs::path(pass).filename().string());
    if (passes.size() > 1) add(passes, "pooled");
  }
  if (cases.empty())
    throw InputError(SourcePlace{root}, "no folder with realistic/ and scaling*/ below it",
                     "recordings of both sides, as <name>/realistic and <name>/scaling");
  return cases;
}

// Errors, notes and warnings of all cases together.
struct Together {
  double mean = 0, worst = 0;  // absolute error of the iteration
  std::size_t covered = 0;
  std::vector<std::string> notes, warnings;  // warnings: notes first

  explicit Together(const std::vector<Case>& cases) {
    const auto add_new = [](std::vector<std::string>& all, const std::vector<std::string>& more) {
      for (const std::string& one : more)
        if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
    };
    for (const Case& one : cases) add_new(notes, one.notes);
    warnings = notes;
    for (const Case& one : cases) {
      const double error = std::abs(one.validation.iteration.error());
      mean += error / static_cast<double>(cases.size());
      covered += one.validation.iteration.covered();
      worst = std::max(worst, error);
      add_new(warnings, one.warnings);
    }
  }
};

nlohmann::ordered_json result_of(const ValidateOptions& options, const std::vector<Case>& cases,
                                 const Together& together, const nlohmann::ordered_json& inputs) {
  auto result = envelope("validate", inputs, together.warnings);
  if (options.all.empty()) {
    add_to(result, cases.front().validation);
    return result;
  }
  result["recordings"] = nlohmann::ordered_json::array();
  for (const Case& one : cases) {
    nlohmann::ordered_json row{{"recording", one.name}, {"passes", one.pass}};
    add_to(row, one.validation);
    result["recordings"].push_back(std::move(row));
  }
  result["mean_abs_iteration_error"] = together.mean;
  result["worst_abs_iteration_error"] = together.worst;
  result["interval_coverage"] = static_cast<double>(together.covered) / static_cast<double>(cases.size());
  return result;
}

void print_tables(const ValidateOptions& options, const std::vector<Case>& cases, const Together& together,
                  const CommonOptions& common) {
  for (const std::string& warning : together.warnings)
    if (common.format == Format::kCsv ||
        std::find(together.notes.begin(), together.notes.end(), warning) == together.notes.end())
      warn(common, warning);
  const Table table = options.all.empty() ? component_table(cases.front()) : overview_table(cases);
  if (common.format == Format::kCsv) return print(table.csv());
  for (const std::string& note : together.notes) print("warning: " + note + "\n");
  print(table.text());
  if (!options.all.empty())
    print(fmt::format(
        "\nmean absolute error of the iteration {}, worst {}; measured inside the 90 % "
        "interval in {} of {}\n",
        percent(together.mean).substr(1), percent(together.worst).substr(1), together.covered, cases.size()));
}

int run(const ValidateOptions& options, const CommonOptions& common) {
  if (options.all.empty() == (options.forecast.empty() || options.measured.empty()))
    throw InputError("found " +
                     std::string(options.all.empty() ? "no recordings" : "--all beside --forecast") +
                     ", expected --forecast SCALING_DIR with --measured REALISTIC_DIR, or --all DIR");
  if (!options.all.empty() && !options.timeline.empty())
    throw InputError("found --timeline beside --all, expected one pair of --forecast and --measured");
  check_report(options.report);
  options.shown.bounds(kTimelineSlices);  // refuses bad ranges before the work
  const models::Cluster cluster = models::Cluster::load(options.cluster);
  if (cluster.node_count == models::Cluster::NodeCount::kOpen)
    throw InputError(fmt::format("--cluster: found {}, expected it with its number of nodes", cluster.name));
  const double limit = options.max_error.empty() ? INFINITY : parse_fraction(options.max_error);
  std::vector<Case> cases;
  if (options.all.empty()) {
    cases.push_back(validate_case(options.forecast, options.measured, cluster, options));
    cases.back().name = options.forecast.front();
  } else {
    ProgressLine line(common);
    cases = validate_all(options.all, cluster, options, line.teller());
  }
  const nlohmann::ordered_json inputs = describe_inputs(common);
  const Together together(cases);
  if (!options.timeline.empty()) write_file(options.timeline, timeline_json(cases.front().views, inputs));
  if (!options.report.empty()) {
    ReportExtras extras;
    extras.timelines = std::move(cases.front().views);
    for (TimelineView& view : extras.timelines) join_short_slices(view, kReportSlices / 2);
    extras.gpus_per_node = cluster.gpus_per_node;
    write_report(options.report, "validate", result_of(options, cases, together, inputs), extras);
  }
  if (common.format == Format::kJson)
    print_json(result_of(options, cases, together, inputs));
  else
    print_tables(options, cases, together, common);
  if (together.worst <= limit) return 0;
  warn(common, fmt::format("check failed: the iteration is off by {}, more than --max-error {}",
                           percent(together.worst).substr(1), percent(limit).substr(1)));
  return 1;
}

// The given option with a table, and the options allowed beside it; nullptr where recordings are compared.
struct TableQuestion {
  const char* option;
  std::set<std::string> beside;
};
const TableQuestion* table_question(const CLI::App& app) {
  static const std::array<TableQuestion, 5> kAll{{{"--log", {"--job", "--with", "--cluster", "--draws"}},
                                                  {"--training", {"--draws", "--detail", "--leave-out"}},
                                                  {"--decisions", {"--draws", "--anchored", "--leave-out"}},
                                                  {"--known", {}},
                                                  {"--memory", {"--detail"}}}};
  const auto at = std::find_if(kAll.begin(), kAll.end(),
                               [&](const TableQuestion& one) { return app.count(one.option) > 0; });
  return at == kAll.end() ? nullptr : &*at;
}

// Refuses options without effect on the question.
void check_beside(const CLI::App& app, const TableQuestion& question) {
  const std::set<std::string> always{"--format", "--quiet", "--seed", "--threads", "--report", "--max-error"};
  for (const CLI::Option option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name != question.option && !always.contains(name) &&
        !question.beside.contains(name))
      throw InputError(fmt::format("found {} beside {}, which does not look at it", name, question.option));
  }
}

int run_table(const ValidateOptions& o, const std::string& question, std::optional<int> draws,
              CommonOptions common) {
  check_report(o.report);
  common.report = o.report;
  const double limit = o.max_error.empty() ? 0 : parse_fraction(o.max_error);
  const std::string detail = question == "--memory" ? "causes" : "breakdown";
  if (!o.detail.empty() && o.detail != detail)
    throw InputError(fmt::format("found --detail {} beside {}, expected {}", o.detail, question, detail));
  if (question == "--log")
    return validate_log(
        {o.log, o.log_job, o.with, o.log_cluster, draws.value_or(LogValidation{}.draws), limit}, common);
  if (question == "--known") {
    if (!o.max_error.empty())
      throw InputError("found --max-error beside --known, whose figures have bands of their own");
    return validate_known(o.known, common);
  }
  if (question == "--memory") return validate_memory({o.memory, limit, o.detail}, common);
  if (question == "--decisions")
    return validate_decisions(
        {o.decisions, draws.value_or(DecisionValidation{}.draws), limit, !o.leave_out.empty(), o.anchored},
        common);
  return validate_training({o.training, o.draws, limit, o.detail, !o.leave_out.empty()}, common);
}

}  // namespace

Verb validate_verb() {
  return {
      "validate", "how far a forecast is from a measured recording",
      "  moesim validate --forecast rec/scaling --measured rec/realistic --cluster echo-h800x2 --max-error "
      "5%\n"
      "  moesim validate --all ../shared/data/echo --cluster echo-h800x2",
      [](CLI::App& app) -> Run {
        auto options = std::make_shared<ValidateOptions>();
        app.add_option("--forecast", options->forecast,
                       "scaling recording to forecast from; several are pooled")
            ->type_name("DIR");
        app.add_option("--measured", options->measured, "realistic recording of the same job")
            ->type_name("DIR");
        app.add_option("--all", options->all,
                       "every <name>/scaling* below DIR, at any depth, against its <name>/realistic")
            ->type_name("DIR");
        app.add_option("--only", options->only,
                       "with --all: only recordings whose paths below DIR hold this text");
        app.add_option("--cluster", options->cluster, "what the job ran on: a built-in name or a file")
            ->capture_default_str();
        options->job.declare(app);
        app.add_flag("--rescale", options->rescale,
                     "give the forecast the sizes of the measured job, where they differ");
        app.add_option("--timeline", options->timeline,
                       "write forecast and measurement side by side as Chrome trace JSON");
        options->shown.declare(app);
        declare_report(app, options->report);
        app.add_option("--microbatches", options->microbatches, "per rank; default: as measured")
            ->check(CLI::Range(1, 1 << 20).description(""));
        const CLI::Option draws =
            app.add_option(
                   "--draws", options->draws,
                   "forecasts drawn for the 90 % intervals; 0: run-to-run noise only; of --decisions 48")
                ->check(CLI::Range(0, 10000).description(""))
                ->capture_default_str();
        app.add_option("--training", options->training,
                       "tables of published training steps, each forecast without a recording")
            ->type_name("CSV");
        app.add_option("--decisions", options->decisions,
                       "tables of published steps under several dispatchers: which one wins, and how sure")
            ->type_name("CSV");
        app.add_option("--leave-out", options->leave_out,
                       "with --training and --decisions: source, each publication is forecast without what "
                       "its rows taught")
            ->check(CLI::IsMember({"source"}));
        app.add_flag(
            "--anchored", options->anchored,
            "with --decisions: each dispatcher in turn is a run that is known, as --measured takes it");
        app.add_option(
               "--memory", options->memory,
               "table of jobs that ran: their measured peaks, where it has them, and whether they fit")
            ->type_name("CSV");
        app.add_option(
               "--known", options->known,
               "folder of public figures (calibration/known): ours beside each, exit 1 where one leaves "
               "its band")
            ->type_name("DIR");
        app.add_option(
               "--log", options->log,
               "log of a training job (Megatron, torchtitan): its steps against the forecast of the same job")
            ->type_name("FILE");
        app.add_option("--job", options->log_job,
                       "with --log: the job's arguments or a scenario [the arguments that the log holds]")
            ->type_name("FILE");
        declare_with(app, options->with);
        app.add_option(
               "--detail", options->detail,
               "with --training: breakdown, the parts of every step (JSON); with --memory: causes, what "
               "the fullest stage holds (JSON)")
            ->check(CLI::IsMember({"breakdown", "causes"}));
        app.add_option("--max-error", options->max_error, "exit 1 when an iteration is further off, e.g. 5%");
        return [options, draws, verb = &app](const CommonOptions& common) {
          options->seed = common.seed;
          if (verb->count("--log") == 0 && (!options->log_job.empty() || !options->with.empty()))
            throw InputError(
                fmt::format("found {} without --log", options->log_job.empty() ? "--with" : "--job"));
          if (verb->count("--cluster") > 0) options->log_cluster = options->cluster;
          if (const TableQuestion* question = table_question(*verb)) {
            check_beside(*verb, *question);
            return run_table(*options, question->option,
                             draws->count() > 0 ? std::optional(options->draws) : std::nullopt, common);
          }
          if (options->anchored) throw InputError("found --anchored without --decisions");
          if (!options->leave_out.empty())
            throw InputError("found --leave-out without --training or --decisions");
          if (!options->detail.empty() || (!options->only.empty() && options->all.empty()))
            throw InputError(fmt::format("found {} without {}",
                                         options->detail.empty() ? "--only" : "--detail",
                                         options->detail.empty() ? "--all" : "--training or --memory"));
          return run(*options, common);
        };
      }};
}

}  // namespace moesim::tools
