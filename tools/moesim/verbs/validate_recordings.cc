#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/units.h"
#include "models/answers/invariants.h"
#include "models/hardware/cluster.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/run_summary.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/terminal.h"
#include "tools/moesim/show/timeline_json.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/validation/validation.h"
#include "tools/moesim/verbs/validate.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr Table::Align kLeft = Table::Align::kLeft;

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
                   const traces::NamedTopology& forecast, replay::RecordingQuestion& question) {
  using Size = std::optional<std::int64_t>;
  models::Scenario& said = question.said;
  const auto take = [&](const char* path, std::int64_t& mine, Size other, Size same) {
    if (question.changes(path) || !other || other == same) return;
    mine = *other;
    said.origins.set(path, models::Origin::said("--rescale"));
  };
  take("parallel.seq", said.parallel.seq, measured.seq, forecast.seq);
  take("model.experts", said.model.experts, measured.experts, forecast.experts);
  take("parallel.ep", said.parallel.ep, topology.expert, forecast.ep);
  take("parallel.dp", said.parallel.dp, topology.dp(), forecast.dp);
  take("parallel.pp", said.parallel.pp, topology.pp, forecast.pp);
}

// Forecast and measurement side by side.
std::vector<TimelineView> views_of(const replay::Iteration& iteration, const replay::RecordedJob& truth,
                                   const models::Cluster& cluster, const RecordingValidation& options) {
  if (!options.all.empty() || (options.timeline.empty() && options.report.empty())) return {};
  const TimelineBounds bounds = options.shown.bounds(kTimelineSlices / 2, true);
  return {timeline_view("forecast", iteration, bounds),
          timeline_view("measured", truth, cluster.gpus_per_node, bounds)};
}

Case validate_case(const std::vector<std::string>& forecast, const std::string& measured_folder,
                   const models::Cluster& cluster, const RecordingValidation& options,
                   const CommonOptions& common) {
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
  models::Question own = question_of(recorded);
  own.said.cluster = std::make_shared<const models::Cluster>(cluster);
  own.said.give("cluster", models::Origin::said("--cluster"));
  replay::RecordingQuestion question =
      options.job.question(recorded, options.job.over(std::move(own), common), &measured);
  question.recorded_there = true;  // --cluster is the job's own
  if (options.rescale) take_sizes_of(measured.recording(0).named, truth.topology, named, question);
  if (options.microbatches > 0 || !from.realistic) {
    question.said.parallel.microbatches =
        options.microbatches > 0 ? options.microbatches : replay::microbatches_of(truth);
    question.said.give("parallel.microbatches", models::Origin::said("--microbatches"));
  }
  traces::NamedTopology sizes = named;
  if (const auto seq = question.size("parallel.seq")) sizes.seq = seq;
  if (const auto experts = question.size("model.experts")) sizes.experts = experts;
  refuse_other_sizes(forecast.front(), sizes, measured.recording(0).named, " as in " + measured_folder);
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

std::string milliseconds(double us) { return fmt::format("{:.2f}", us / 1e3); }

// A run's loss is mostly the wait between expert groups.
std::string shown(std::string_view component) {
  return component == "loss" ? "loss, with waiting" : std::string(component);
}

using C = replay::Comparison;

const Columns<C>& comparison_columns() {
  static const Columns<C> all{{"forecast_us", &C::forecast_us, "", {"forecast ms", milliseconds}},
                              {"measured_us", &C::measured_us, "", {"measured ms", milliseconds}},
                              {"error", &C::error, "", share_head("error", 1, true)},
                              {"low_us", &C::low_us, "", {"low", milliseconds}},
                              {"high_us", &C::high_us, "", {"high", milliseconds}},
                              {"covered", &C::covered, "whether the 90 % interval holds the measured value"}};
  return all;
}

Columns<replay::Validation> validation_columns() {
  using V = replay::Validation;
  const auto components = [](const V& v) {
    ordered_json all = ordered_json::object();
    for (const auto& one : v.components) all[std::string(one.name)] = comparison_columns().json(one);
    return all;
  };
  return Columns<V>{{"iteration", Columns<V>().add(comparison_columns(), &V::iteration)},
                    {"components",
                     components,
                     {"", {{"type", "object"}, {"additionalProperties", comparison_columns().schema()}}}},
                    {"mean_abs_component_error", &V::mean_abs_component_error}};
}

// Returns one configuration: a row per component.
Table component_table(const Case& one) {
  const auto covered = [](const C& c) { return c.covered() ? "inside" : "outside the interval"; };
  Columns<C> columns{{"", [](const C& c) { return shown(c.name); }, "", "operation"}};
  columns.add(comparison_columns().some({"forecast_us", "low_us", "high_us", "measured_us", "error"}))
      .add({{"", covered, "", "measured is"}});
  Table table(columns.heads({}));
  table.row(columns.cells({}, one.validation.iteration));
  table.separator();
  for (const C& component : one.validation.components) table.row(columns.cells({}, component));
  return table;
}

// Returns many configurations: a row each, a column per component.
Table overview_table(const std::vector<Case>& cases) {
  std::vector<std::string_view> names;
  for (const Case& one : cases)
    for (const auto& component : one.validation.components)
      if (std::ranges::count(names, component.name) == 0) names.push_back(component.name);
  std::vector<Table::Column> columns{{"recording", kLeft}, {"passes", kLeft}, {"forecast ms"},
                                     {"90 % interval"},    {"measured ms"},   {"error"}};
  for (const auto name : names) columns.push_back({shown(name)});
  Table table(columns);
  for (const Case& one : cases) {
    const auto& iteration = one.validation.iteration;
    std::vector<std::string> row{one.name,
                                 one.pass,
                                 milliseconds(iteration.forecast_us),
                                 fmt::format("{:.1f} .. {:.1f}{}", iteration.low_us / 1e3,
                                             iteration.high_us / 1e3, iteration.covered() ? "" : " !"),
                                 milliseconds(iteration.measured_us),
                                 percent(iteration.error(), 1, true)};
    for (const auto name : names) {
      const auto& components = one.validation.components;
      const auto at = std::ranges::find(components, name, &replay::Comparison::name);
      row.push_back(at == components.end() ? "-" : percent(at->error(), 1, true));
    }
    table.row(std::move(row));
  }
  return table;
}

// Finds folders below `folder`, at any depth, that contain realistic/, ordered by path. `seen` excludes
// repetitions through links.
void find_recorded(const fs::path& folder, std::set<fs::path>& seen, std::vector<fs::path>& found) {
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
                               const RecordingValidation& options, const CommonOptions& common) {
  ProgressLine line(common);
  const Progress progress = line.teller();
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
      Case one = validate_case(some, (folder / "realistic").string(), cluster, options, common);
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
    for (const Case& one : cases) models::add_new(notes, one.notes);
    warnings = notes;
    for (const Case& one : cases) {
      const double error = std::abs(one.validation.iteration.error());
      mean += error / static_cast<double>(cases.size());
      covered += one.validation.iteration.covered();
      worst = std::max(worst, error);
      models::add_new(warnings, one.warnings);
    }
  }
};

struct All {
  const std::vector<Case>& cases;
  const Together& together;
};

Columns<All> all_columns() {
  Columns<Case> recording{{"recording", &Case::name}, {"passes", &Case::pass}};
  return Columns<All>()
      .list(
          "recordings", recording.add(validation_columns(), &Case::validation),
          [](const All& all) -> const auto& { return all.cases; })
      .add({{"mean_abs_iteration_error", [](const All& all) { return all.together.mean; }},
            {"worst_abs_iteration_error", [](const All& all) { return all.together.worst; }},
            {"interval_coverage", [](const All& all) {
               return static_cast<double>(all.together.covered) / static_cast<double>(all.cases.size());
             }}});
}

const ResultSchema kSchema("validate", "validate", [] { return validation_columns().schema(); });
const ResultSchema kAllSchema("validate-all", "validate --all", [] { return all_columns().schema(); });

ordered_json result_of(const RecordingValidation& options, const std::vector<Case>& cases,
                       const Together& together, const ordered_json& inputs) {
  auto result = envelope("validate", inputs, together.warnings);
  result.update(options.all.empty() ? validation_columns().json(cases.front().validation)
                                    : all_columns().json({cases, together}));
  return result;
}

void print_tables(const RecordingValidation& options, const std::vector<Case>& cases,
                  const Together& together, const CommonOptions& common) {
  for (const std::string& warning : together.warnings)
    if (common.format == Format::kCsv || std::ranges::count(together.notes, warning) == 0)
      warn(common, warning);
  if (common.format == Format::kCsv)
    return print(csv_of(all_columns().json({cases, together}).at("recordings")));
  const Table table = options.all.empty() ? component_table(cases.front()) : overview_table(cases);
  for (const std::string& note : together.notes) print("warning: " + note + "\n");
  print(table.text());
  if (!options.all.empty())
    print(
        fmt::format("\nmean absolute error of the iteration {}, worst {}; measured inside the 90 % "
                    "interval in {} of {}\n",
                    percent(together.mean), percent(together.worst), together.covered, cases.size()));
}

}  // namespace

int validate_recordings(const RecordingValidation& options, const CommonOptions& common) {
  if (options.all.empty() == (options.forecast.empty() || options.measured.empty()))
    throw InputError("found " +
                     std::string(options.all.empty() ? "no recordings" : "--all beside --forecast") +
                     ", expected --forecast SCALING_DIR with --measured REALISTIC_DIR, or --all DIR");
  if (!options.all.empty() && !options.timeline.empty())
    throw InputError("found --timeline beside --all, expected one pair of --forecast and --measured");
  check_report(options.report);
  // Refuses bad ranges before the work.
  options.shown.bounds(kTimelineSlices,
                       options.all.empty() && !(options.timeline.empty() && options.report.empty()));
  const models::Cluster cluster = models::Cluster::load(options.cluster);
  if (cluster.node_count == models::Cluster::NodeCount::kOpen)
    throw InputError(fmt::format("--cluster: found {}, expected it with its number of nodes", cluster.name));
  const double limit = options.max_error.empty() ? INFINITY : parse_fraction(options.max_error);
  std::vector<Case> cases;
  if (options.all.empty()) {
    cases.push_back(validate_case(options.forecast, options.measured, cluster, options, common));
    cases.back().name = options.forecast.front();
  } else {
    cases = validate_all(options.all, cluster, options, common);
  }
  const ordered_json inputs = describe_inputs(common);
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
                           percent(together.worst), percent(limit)));
  return 1;
}

}  // namespace moesim::tools
