// `moesim sweep`: the same question for thousands of scenarios, on threads or on many machines.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tools/moesim/questions/inputs.h"
#include "tools/moesim/questions/scenario_options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/version.h"
#include "tools/moesim/sweeps/sweep_file.h"
#include "tools/moesim/sweeps/sweep_mpi.h"
#include "tools/moesim/sweeps/sweep_pareto.h"
#include "tools/moesim/sweeps/sweep_progress.h"
#include "tools/moesim/sweeps/sweep_report.h"
#include "tools/moesim/sweeps/sweep_run.h"
#include "tools/moesim/sweeps/sweep_shard.h"
#include "tools/moesim/sweeps/sweep_summary.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;

struct SweepVerbOptions {
  ScenarioOptions scenario;
  std::vector<std::string> words;  // a scenario; or merge and tables
  std::string out, sampling = "latin", pareto, report, shard;
  SweepOptions plan;
  int draws = 0;
  double patience = 60;
  bool resume = false, overwrite = false, strict = false, breakdown = false, dry_run = false;
};

// Reads every file that the axes name, and what these name (a cluster's profile), before the first row is
// made: the definition of the sweep holds their hashes.
void read_named(const ScenarioDocument& base, const SweepPlan& plan) {
  plan.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
    if (!value.json.is_string() || !is_file(value.text)) return;
    read_file(value.text);
    try {
      ScenarioDocument changed = base;
      changed.set(path, value.json);
      changed.scenario();
    } catch (const InputError&) {  // its rows will say so
    }
  });
  if (const models::RoutingSpec& routing = base.scenario().routing;
      routing.kind == models::RoutingSpec::Kind::kFile)
    read_file(routing.path);
}

// Everything that the bytes of the result follow from.
std::string definition_of(const SweepVerbOptions& o, const ScenarioDocument& base, const SweepPlan& plan,
                          RowFormat format) {
  nlohmann::ordered_json d;
  d["version"] = version();
  d["scenario"] = models::to_json(base.scenario());
  d["grid"] = o.plan.grids;
  d["list"] = o.plan.lists;
  d["range"] = o.plan.ranges;
  d["sample"] = {{"count", o.plan.samples}, {"method", o.sampling}, {"seed", o.plan.seed}};
  d["draws"] = o.draws;
  d["breakdown"] = o.breakdown;
  d["format"] = format == RowFormat::kCsv ? "csv" : "jsonl";
  d["scenarios"] = plan.size();
  if (!o.shard.empty()) add_shard(d, SweepShard::parse(o.shard));
  d["files"] = files_read();
  return json_text(d);
}

// What made a finished table, beside it.
void write_record(const std::string& out, const std::string& sha256, const std::string& definition,
                  std::uint64_t scenarios, const models::Scenario& base, const CommonOptions& common) {
  nlohmann::ordered_json defined = nlohmann::ordered_json::parse(definition);
  nlohmann::ordered_json inputs = describe_inputs(common);
  inputs["scenario"] = defined["scenario"];
  nlohmann::ordered_json record = envelope("sweep", inputs, {});
  add_model(record, base);
  record["rows"] = {
      {"file", fs::path(out).filename().string()}, {"sha256", sha256}, {"scenarios", scenarios}};
  record["definition"] = std::move(defined);
  write_file(SweepFile::record_of(out), json_text(record));
}

RowFormat format_of(const SweepVerbOptions& o, const CommonOptions& common) {
  if (o.out.ends_with(".jsonl") || o.out.ends_with(".ndjson")) return RowFormat::kJsonLines;
  return o.out.empty() && common.format == Format::kJson ? RowFormat::kJsonLines : RowFormat::kCsv;
}

void write_sweep_report(const std::string& path, const SweepReport& rows, const std::string& definition,
                        const CommonOptions& common) {
  nlohmann::ordered_json inputs = describe_inputs(common);
  const auto defined = nlohmann::ordered_json::parse(definition);
  for (const auto& [key, value] : defined.items())
    if (key != "schema" && key != "version") inputs[key] = value;
  nlohmann::ordered_json result = envelope("sweep", inputs, {});
  rows.add_to(result);
  write_report(path, "sweep", result);
}

// The columns that are swept over.
std::vector<std::string> axes_of(const SweepPlan& plan) {
  std::vector<std::string> axes;
  for (const ScenarioPath& path : plan.paths()) axes.push_back(path.path);
  return axes;
}

int run_sweep(SweepVerbOptions o, const CommonOptions& common) {
  check_report(o.report);
  const std::unique_ptr<SweepMpi> mpi = SweepMpi::start();
  if (o.words.size() > 1)
    throw InputError("sweep: found " + in_quotes(o.words[1]) +
                     ", expected one scenario file, or merge and tables");
  if (!o.words.empty()) o.scenario.take_file(o.words.front(), std::nullopt);
  if (!o.scenario.asks_anything())
    throw InputError("sweep: found no scenario, expected a file, or --model and what else there is to say");
  if (!o.shard.empty() && o.out.empty())
    throw InputError("--shard: found no --out, expected a file, which `moesim sweep merge` takes");
  o.plan.sampling = o.sampling == "latin" ? Sampling::kLatinHypercube : Sampling::kRandom;
  o.plan.seed = common.seed;
  const SweepPlan plan(o.plan);
  const auto [begin, end] = o.shard.empty() ? std::pair<std::uint64_t, std::uint64_t>{0, plan.size()}
                                            : SweepShard::parse(o.shard).of(plan.size());
  // Where the scope is swept over, each row says what it has no use for.
  const bool scopes = std::any_of(plan.paths().begin(), plan.paths().end(),
                                  [](const ScenarioPath& path) { return path.path == "scope"; });
  models::ChosenPlan chosen;
  SweepJob job{o.scenario.document(common, true, chosen, scopes), nullptr, nullptr, {}, false, 0, 0, 1};
  job.end = end;
  if (!chosen.options.empty() && (!mpi || mpi->rank() == 0))
    warn(common, fmt::format("plan chosen: {} ({})", chosen.options, chosen.because));
  RowColumns columns;
  columns.format = format_of(o, common);
  columns.paths = plan.paths();
  columns.intervals = o.draws > 0;
  columns.breakdown = o.breakdown;
  columns.cost = job.base.document().contains("prices") ||
                 std::any_of(plan.paths().begin(), plan.paths().end(),
                             [](const ScenarioPath& path) { return path.path.starts_with("prices."); });
  const SweepRows rows(columns);
  job.plan = &plan;
  job.rows = &rows;
  job.options = {o.draws, o.breakdown};
  job.strict = o.strict;
  [[maybe_unused]] const ScenarioMaker settable(job.base, plan.paths());  // says what cannot be set together
  if (!o.pareto.empty() && (o.out.empty() || columns.format != RowFormat::kCsv))
    throw InputError("--pareto: found no CSV file to read the front from, expected --out FILE.csv");
  if (!o.pareto.empty()) check_pareto_columns(o.pareto, rows.names());
  if (o.dry_run) {
    if (!mpi || mpi->rank() == 0) print(fmt::format("{} scenarios\n", end - begin));
    if (mpi) mpi->finish({});
    return 0;
  }
  read_named(job.base, plan);
  const std::string definition = definition_of(o, job.base, plan, columns.format);
  const bool whole_step = job.base.scenario().scope == models::Scenario::Scope::kStep;
  const int threads = common.threads > 0 ? common.threads
                      : mpi              ? 1
                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto ranks = static_cast<std::uint64_t>(mpi ? mpi->size() : 1);
  const std::uint64_t share = (end - begin) / (8 * static_cast<std::uint64_t>(threads) * ranks);
  job.block = std::clamp<std::uint64_t>(share, 1, whole_step || o.draws > 0 ? 4 : 1024);

  const auto say = [&](const std::string& text) { warn(common, text); };
  if (mpi && mpi->rank() > 0) {
    const int code = mpi->work(job, threads, definition, o.patience);
    mpi->finish(say);
    return code;
  }
  const SweepStart start = o.overwrite ? SweepStart::kOverwrite
                           : o.resume  ? SweepStart::kResume
                                       : SweepStart::kFresh;
  // For people the table is not printed, but what it says.
  const bool summed_up = common.format == Format::kTable && o.pareto.empty();
  std::optional<SweepFile> file;
  if (!o.out.empty() || !summed_up) file.emplace(o.out, definition, rows.header(), start);
  job.first = !file ? begin : file->complete() ? end : std::max(begin, file->first());
  SweepProgress progress(common.quiet, end - begin, job.first - begin);
  std::uint64_t failed = 0;
  std::string first_error;
  SweepReport shown(rows.names());
  const bool collect = !o.report.empty() && o.out.empty();
  SweepSummary summary(rows.names(), axes_of(plan));
  const SweepWrite write = [&](const SweepBlock& block) {
    const bool whole = !o.strict || block.failed == 0;
    if (file) file->append(block.rows, whole ? std::optional(block.first + block.count) : std::nullopt);
    if (collect) shown.add(block.rows);
    if (summed_up && o.out.empty()) summary.add(block.rows);
    progress.advance(block.count);
    failed += block.failed;
    if (first_error.empty()) first_error = block.first_error;
    return !(o.strict && failed > 0);
  };
  if (mpi)
    mpi->deal(job, threads, definition, o.patience, write, say);
  else
    sweep_on_threads(job, threads, write);
  progress.finish();
  if (o.strict && failed > 0)
    throw InputError(fmt::format(
        "sweep: {}{}", first_error,
        o.out.empty() ? "" : "; the rows up to it are in " + SweepFile::partial_of(o.out).string()));
  if (file && file->complete()) {
    warn(common, fmt::format("{} is complete: nothing left to do", o.out));
  } else if (file) {
    file->finish();
    if (!o.out.empty())
      write_record(o.out, file->sha256(), definition, end - begin, job.base.scenario(), common);
  }
  if (summed_up) {
    if (!o.out.empty())
      summary.add_file(o.out);  // with the rows of an earlier run that this one went on with
    print(summary.text());
    if (o.out.empty()) print("All rows: --format csv, or --out FILE.csv.\n");
  }
  if (failed > 0)
    warn(common, fmt::format("{} of {} scenarios have an error in the place of a forecast; {}", failed,
                             end - job.first, first_error));
  if (!o.report.empty()) {
    if (!collect) shown.add_file(o.out);  // with the rows of an earlier run that this one went on with
    write_sweep_report(o.report, shown, definition, common);
  }
  if (!o.pareto.empty()) print_pareto(o.out, o.pareto, common);
  if (mpi) mpi->finish(say);
  return 0;
}

int run_merge(const SweepVerbOptions& o) {
  const std::vector<std::string> parts(o.words.begin() + 1, o.words.end());
  if (parts.empty() || o.out.empty())
    throw InputError("sweep merge: found no tables or no --out, expected both");
  if (!o.plan.grids.empty() || !o.plan.lists.empty() || !o.plan.ranges.empty() || !o.shard.empty())
    throw InputError("sweep merge: found what to sweep over, expected tables that are there");
  const SweepStart start = o.overwrite ? SweepStart::kOverwrite
                           : o.resume  ? SweepStart::kResume
                                       : SweepStart::kFresh;
  merge_sweeps(parts, o.out, start);
  return 0;
}

}  // namespace

Verb sweep_verb() {
  return {
      "sweep", "the same question for a grid of thousands of scenarios; on threads here, or under mpirun",
      "  moesim sweep scenario.json --grid parallel.ep=8,16,32 --grid routing.gini=0..0.6:0.1 --out "
      "results.csv\n"
      "  mpirun -n 8 moesim sweep scenario.json --sample 100000 --range topk=1..8 "
      "--range nic.bandwidth=25..400GBps:log --out results.csv --resume",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<SweepVerbOptions>();
        app.add_option(
               "scenario", o->words,
               "Scenario file, or a job's (see compare), that the values are put into; or merge, and the "
               "tables of all parts (--shard)")
            ->type_name("FILE | merge PART...");
        o->scenario.declare_fields(app);
        app.add_option("--grid", o->plan.grids,
                       "path=8,16,32 or path=0..0.6:0.1 or path=2..64:x2; all combinations")
            ->allow_extra_args(false);
        app.add_option("--list", o->plan.lists,
                       "path=values, several side by side; or a CSV file with paths as its header")
            ->allow_extra_args(false);
        app.add_option("--sample", o->plan.samples, "Draw so many scenarios from the --range box, by --seed");
        app.add_option("--range", o->plan.ranges, "path=low..high[:log] or path=values, to draw from")
            ->allow_extra_args(false);
        app.add_option("--sampling", o->sampling, "latin (hypercube) or random [latin]")
            ->check(CLI::IsMember({"latin", "random"}));
        app.add_option(
            "--out", o->out,
            "FILE.csv or FILE.jsonl; appears when it is whole [a summary; all rows with --format csv]");
        declare_report(app, o->report);
        app.add_flag("--resume", o->resume, "Go on with what an interrupted sweep left in FILE.partial");
        app.add_flag("--overwrite", o->overwrite, "Start again in spite of it");
        app.add_flag("--strict", o->strict,
                     "End at the first scenario without a forecast [a row with its error]");
        app.add_flag("--breakdown", o->breakdown, "Columns with the parts of the time");
        app.add_option("--draws", o->draws, "Draws of the profile for intervals [0: none]")
            ->check(CLI::Range(0, models::kMostDraws));
        app.add_option("--pareto", o->pareto,
                       "Print the scenarios that nothing beats in all of these columns, e.g. "
                       "time_us.value,cost_per_million_tokens");
        app.add_option("--patience", o->patience,
                       "Under MPI: seconds after which the work of a silent machine is done by others [60]")
            ->check(CLI::Range(0.1, 1e6));
        app.add_option(
            "--shard", o->shard,
            "I/N: part I (from 0) of N, for jobs that share no disk; sweep merge puts them together");
        app.add_flag("--dry-run", o->dry_run, "Only count the scenarios");
        return [o](const CommonOptions& common) {
          return !o->words.empty() && o->words.front() == "merge" ? run_merge(*o) : run_sweep(*o, common);
        };
      }};
}

}  // namespace moesim::tools
