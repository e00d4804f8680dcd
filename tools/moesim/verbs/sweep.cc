// `moesim sweep`: the same question for thousands of scenarios, on threads or on many machines.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/files_read.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/terminal.h"
#include "tools/moesim/study/sweep_file.h"
#include "tools/moesim/study/sweep_kind.h"
#include "tools/moesim/study/sweep_mpi.h"
#include "tools/moesim/study/sweep_run.h"
#include "tools/moesim/study/sweep_summary.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;

struct SweepVerbOptions {
  std::string out, sampling = "latin", pareto, report, shard;
  models::PointOptions points;
  bool resume = false, overwrite = false, strict = false, dry_run = false;

  SweepStart start() const {
    return overwrite ? SweepStart::kOverwrite : resume ? SweepStart::kResume : SweepStart::kFresh;
  }
};

// Returns everything that determines the bytes of the result.
std::string definition_of(const SweepVerbOptions& o, const SweepKind& kind, const models::Points& points) {
  nlohmann::ordered_json d;
  d["version"] = version();
  d.update(kind.definition());
  d["grid"] = o.points.grids;
  d["list"] = o.points.lists;
  d["range"] = o.points.ranges;
  d["sample"] = {{"count", o.points.samples}, {"method", o.sampling}, {"seed", o.points.seed}};
  d["format"] = kind.table().format() == RowFormat::kCsv ? "csv" : "jsonl";
  d["scenarios"] = points.size();
  if (!o.shard.empty()) add_shard(d, SweepShard::parse(o.shard));
  d["files"] = files_read();
  return json_text(d);
}

// Throws for a file that was read but is not in `definition`: its rows could depend on different contents.
// Called before the first row is kept.
void check_files(const std::set<std::string>& named) {
  for (const auto& [file, hash] : FilesRead::hashes())
    if (!named.contains(file))
      throw InputError(SourcePlace{file}, "a file that a row read and that no axis led to before the sweep",
                       "all files of a sweep to be known before its rows; this is a bug");
}

std::set<std::string> files_of(const std::string& definition) {
  std::set<std::string> named;
  const auto defined = nlohmann::ordered_json::parse(definition);
  for (const auto& [file, hash] : defined["files"].items()) named.insert(file);
  return named;
}

// Returns the record stored beside a finished table.
std::string record_text(const SweepFile& file, const std::string& definition, std::uint64_t scenarios,
                        const SweepKind& kind, const CommonOptions& common) {
  nlohmann::ordered_json inputs = describe_inputs(common);
  nlohmann::ordered_json record = envelope("sweep", inputs, {});
  kind.describe(record);
  record["rows"] = {
      {"file", file.path().filename().string()}, {"sha256", file.sha256()}, {"scenarios", scenarios}};
  record["definition"] = nlohmann::ordered_json::parse(definition);
  return json_text(record);
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

int threads_of(const CommonOptions& common, const SweepMpi* mpi) {
  if (common.threads > 0) return common.threads;
  return mpi ? 1 : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// Returns the size of blocks from job.first on: several per thread, and at most half a second of work, so
// that rank 0 is not asked too often, and the end is balanced.
std::uint64_t block_of(const SweepJob& job, int threads, const SweepMpi* mpi) {
  const std::uint64_t all =
      static_cast<std::uint64_t>(threads) * static_cast<std::uint64_t>(mpi ? mpi->size() : 1);
  // Rank 0 may hold eight blocks for every thread (SweepMpi::deal): 2 GB at half a kilobyte each.
  constexpr std::uint64_t kMostHeld = 4'000'000;
  const std::uint64_t most = std::min({(job.end - std::min(job.first, job.end)) / (8 * all),
                                       kMostHeld / (8 * all), job.kind->most_in_block()});
  if (most < 2) return 1;
  // The second point: the first reads files that the others share.
  constexpr double kBlockSeconds = 0.5;
  double seconds = 0;
  const SweepAsker asker = job.kind->asker(*job.points);
  for (const std::uint64_t point : {job.first, job.first + 1}) {
    std::vector<PathValue> values;
    job.points->point(point, values);
    const auto begun = std::chrono::steady_clock::now();
    try {
      asker(values);
    } catch (const InputError&) {  // its row will report the error
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }
  const double fit = std::clamp(kBlockSeconds / std::max(seconds, 1e-9), 1.0, static_cast<double>(most));
  return static_cast<std::uint64_t>(fit);
}

// Says how to go on where the launcher ends all ranks because one is lost or the time is over.
void say_resume(int signal) {
  constexpr std::string_view kLine =
      "moesim: the sweep was ended; the same command with --resume goes on behind the rows that are there\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Rank 0, or the only process: writes the table and its summary.
class SweepRun {
 public:
  SweepRun(const SweepVerbOptions& o, const CommonOptions& common, SweepJob& job,
           const std::string& definition)
      : o_(o),
        common_(common),
        job_(job),
        definition_(definition),
        named_(files_of(definition)),
        begin_(job.first),
        // People get the summary instead of the table.
        summed_up_(common.format == Format::kTable && o.pareto.empty()),
        table_(job.kind->table()),
        shown_(table_),
        summary_(table_, job.kind->summary()) {}

  void make(SweepMpi* mpi, int threads) {
    if (!o_.out.empty() || !summed_up_) file_.emplace(o_.out, definition_, table_.header(), o_.start());
    job_.first = !file_ ? begin_ : file_->complete() ? job_.end : std::max(begin_, file_->first());
    job_.block = block_of(job_, threads, mpi);
    ProgressLine line(common_);
    const Progress progress = line.teller();
    const auto tell = [&](std::uint64_t next) {
      if (progress)
        progress(static_cast<std::int64_t>(next - begin_), static_cast<std::int64_t>(job_.end - begin_));
    };
    tell(job_.first);
    const SweepWrite write = [&](const SweepBlock& block) {
      tell(block.first + block.count);
      return take(block);
    };
    if (!mpi) return sweep_on_threads(job_, threads, write);
    if (!o_.out.empty()) ::signal(SIGTERM, say_resume);
    mpi->deal(job_, threads, definition_, write);
    ::signal(SIGTERM, SIG_DFL);
  }

  void tell() {
    if (o_.strict && failed_ > 0)
      throw InputError(fmt::format(
          "sweep: {}{}", first_error_,
          o_.out.empty() ? ""
                         : "; the rows up to it are in " + SweepFile::partial_of(file_->path()).string()));
    if (file_ && file_->complete()) {
      warn(common_, fmt::format("{} is complete: nothing left to do", o_.out));
    } else if (file_) {
      file_->finish(
          o_.out.empty() ? "" : record_text(*file_, definition_, job_.end - begin_, *job_.kind, common_));
    }
    // With the rows of the resumed run.
    if (told() && !o_.out.empty()) table_.read_file(o_.out, taker());
    if (summed_up_) {
      print(summary_.text());
      if (o_.out.empty()) print("All rows: --format csv, or --out FILE.csv.\n");
    }
    if (failed_ > 0)
      warn(common_, fmt::format("{} of {} scenarios have an error in the place of a forecast; {}", failed_,
                                job_.end - job_.first, first_error_));
    if (!o_.report.empty()) write_sweep_report(o_.report, shown_, definition_, common_);
    if (!o_.pareto.empty()) print_pareto(o_.out, o_.pareto, table_, job_.kind->summary(), common_);
  }

 private:
  // Whether rows are read for people.
  bool told() const { return summed_up_ || !o_.report.empty(); }
  SweepTable::Take taker() {
    return [this](SweepRow&& row) {
      if (summed_up_) summary_.add(row);
      if (!o_.report.empty()) shown_.add(std::move(row));
    };
  }
  bool take(const SweepBlock& block) {
    if (file_ && !o_.out.empty()) check_files(named_);
    const bool whole = !o_.strict || block.failed == 0;
    if (file_) file_->append(block.rows, whole ? std::optional(block.first + block.count) : std::nullopt);
    if (told() && o_.out.empty()) table_.read(block.rows, taker());
    failed_ += block.failed;
    if (first_error_.empty()) first_error_ = block.first_error;
    return !(o_.strict && failed_ > 0);
  }

  const SweepVerbOptions& o_;
  const CommonOptions& common_;
  SweepJob& job_;
  const std::string& definition_;
  const std::set<std::string> named_;  // files of the definition
  const std::uint64_t begin_;
  const bool summed_up_;
  std::optional<SweepFile> file_;
  const SweepTable& table_;
  SweepReport shown_;
  SweepSummary summary_;
  std::uint64_t failed_ = 0;
  std::string first_error_;
};

// Refuses a page under the name of a file that the sweep itself writes.
void refuse_page_beside(const SweepVerbOptions& o) {
  if (o.out.empty() || o.report.empty()) return;
  const auto real = [](const fs::path& path) { return fs::weakly_canonical(fs::absolute(path)); };
  for (const fs::path& file : SweepFile::beside(regular_file_to_write(o.out)))
    if (real(file) == real(o.report))
      throw InputError(
          fmt::format("--report: found {}, which the sweep writes beside its table, expected another file",
                      in_quotes(o.report)));
}

int run_sweep(SweepVerbOptions o, SweepKind& kind, const CommonOptions& common) {
  check_report(o.report);
  refuse_page_beside(o);
  const std::unique_ptr<SweepMpi> mpi = SweepMpi::start(!o.shard.empty());
  const bool first_rank = !mpi || mpi->rank() == 0;
  if (!o.shard.empty() && o.out.empty())
    throw InputError("--shard: found no --out, expected a file, which `moesim sweep merge` takes");
  o.points.axis = [&](std::string_view text) { return kind.axis(text); };
  o.points.axes = kind.own_axes();
  o.points.sampling = o.sampling == "latin" ? models::Sampling::kLatinHypercube : models::Sampling::kRandom;
  o.points.seed = common.seed;
  const models::Points points(o.points);
  const auto [begin, end] = o.shard.empty() ? std::pair<std::uint64_t, std::uint64_t>{0, points.size()}
                                            : SweepShard::parse(o.shard).of(points.size());
  const RowFormat format = format_of(o, common);
  kind.prepare(points, format, common, [&](const std::string& text) {
    if (first_rank) warn(common, text);
  });
  if (const models::Comparison* run = kind.unexplained()) {
    if (first_rank) print_unexplained("sweep", *run, common);
    return 1;
  }
  if (!o.pareto.empty() && (o.out.empty() || format != RowFormat::kCsv))
    throw InputError("--pareto: found no CSV file to read the front from, expected --out FILE.csv");
  if (!o.pareto.empty()) check_pareto_columns(o.pareto, kind.table());
  if (o.dry_run) {
    if (first_rank) print(fmt::format("{} scenarios\n", end - begin));
    return 0;
  }
  kind.read_inputs(points);
  const std::string definition = definition_of(o, kind, points);
  SweepJob job{.kind = &kind, .points = &points, .strict = o.strict, .first = begin, .end = end};
  const int threads = threads_of(common, mpi.get());
  if (!first_rank) {
    mpi->work(job, threads, definition);
    return 0;
  }
  SweepRun run(o, common, job, definition);
  run.make(mpi.get(), threads);
  run.tell();
  return 0;
}

// Declares the options of every kind of sweep.
void declare_points(CLI::App& app, SweepVerbOptions& o) {
  app.add_option("--grid", o.points.grids,
                 "path=8,16,32 or path=0..0.6:0.1 or path=2..64:x2; all combinations")
      ->allow_extra_args(false);
  app.add_option("--list", o.points.lists,
                 "path=values, several side by side; or a CSV file, paths its header")
      ->allow_extra_args(false);
  const CLI::Option sample =
      app.add_option("--sample", o.points.samples, "Draw so many scenarios from the --range box, by --seed");
  app.add_option("--range", o.points.ranges, "path=low..high[:log] or path=values, to draw from")
      ->allow_extra_args(false);
  app.add_option("--sampling", o.sampling, "latin (hypercube) or random [latin]")
      ->check(CLI::IsMember({"latin", "random"}))
      ->needs(sample);
}

void declare_file(CLI::App& app, SweepVerbOptions& o) {
  const CLI::Option out =
      app.add_option("--out", o.out, "FILE.csv or FILE.jsonl, all rows [a summary of them]");
  app.add_flag("--resume", o.resume, "Go on with what an interrupted sweep left in FILE.partial").needs(out);
  app.add_flag("--overwrite", o.overwrite, "Start again in spite of it").needs(out);
}

void declare_run(CLI::App& app, SweepVerbOptions& o) {
  app.add_flag("--strict", o.strict, "End at the first scenario without a forecast [a row with its error]");
  app.add_option("--pareto", o.pareto, "The rows that nothing beats: time_us.value,peak_memory_bytes.max");
  app.add_option("--shard", o.shard,
                 "I/N: part I (from 0) of N, for jobs that share no disk; sweep merge puts them together");
  app.add_flag("--dry-run", o.dry_run, "Only count the scenarios");
}

// Declares a kind of sweep on the command line.
Run declare_kind(CLI::App& app, const std::shared_ptr<SweepKind>& kind, bool page) {
  auto o = std::make_shared<SweepVerbOptions>();
  kind->declare(app);
  declare_points(app, *o);
  declare_file(app, *o);
  if (page) declare_report(app, o->report);
  declare_run(app, *o);
  return [o, kind](const CommonOptions& common) { return run_sweep(*o, *kind, common); };
}

Run declare_merge(CLI::App& app) {
  auto o = std::make_shared<SweepVerbOptions>();
  auto parts = std::make_shared<std::vector<std::string>>();
  app.add_option("part", *parts, "Tables of all parts (--shard), in any order")->type_name("PART...");
  declare_file(app, *o);
  return [o, parts](const CommonOptions&) {
    if (parts->empty() || o->out.empty())
      throw InputError("sweep merge: found no tables or no --out, expected both");
    merge_sweeps(*parts, o->out, o->start());
    return 0;
  };
}

}  // namespace

Verb sweep_verb() {
  return {"sweep",
          "the same for a grid of thousands of scenarios, recordings or trainings",
          "  moesim sweep scenario.json --grid parallel.ep=8,16,32 --grid topk=1..8 --out results.csv\n"
          "  mpirun -n 8 moesim sweep scenario.json --sample 1000 --range topk=1..8 --out results.csv",
          [](CLI::App& app) -> Run {
            const Run scenarios = declare_kind(app, sweep_of_scenarios(), true);
            std::vector<Command> commands;
            for (const SweepCommand& kind : kSweepCommands)
              commands.push_back({kind.name, kind.summary,
                                  [&](CLI::App& own) { return declare_kind(own, kind.make(), false); },
                                  kind.examples});
            commands.push_back({"merge", "one table out of the tables of all parts (--shard)", declare_merge,
                                "  moesim sweep merge part0.csv part1.csv --out results.csv"});
            return declare_commands(app, commands, scenarios);
          },
          {"--model", "--cluster", "--set", "--grid", "--list", "--sample", "--range", "--out", "--pareto",
           "--report"}};
}

}  // namespace moesim::tools
