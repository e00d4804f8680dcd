// `moesim calibrate measure`: runs the programs of calibration/bench, a few benchmarks at a time, and imports
// their output. Finished parts stay, so that a second call continues where the first one ended.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "calibration/check/check.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/verbs/calibrate_rows.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;

// The benchmarks are built beside moesim; the GPU one wins where it exists.
fs::path find_bench(const std::string& wanted) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> tried;
  for (const char* name : {"moesim-bench-cuda", "moesim-bench-host"}) {
    if (!wanted.empty() && wanted != (std::string(name) == "moesim-bench-cuda" ? "cuda" : "host")) continue;
    for (const fs::path& folder :
         {self.parent_path(), self.parent_path() / "bench", self.parent_path() / "../lib/moesim"}) {
      fs::path candidate = folder / name;
      if (fs::is_regular_file(candidate, error)) return candidate;
    }
    tried.emplace_back(name);
  }
  throw InputError(
      "no bench program (" + join(tried, ", ") +
      ") beside moesim; build one: cmake -S calibration/bench -B build/bench && cmake --build build/bench");
}

using nlohmann::ordered_json;

// Runs a program with its standard output in a file, or discarded.
int run(const std::vector<std::string>& words, const fs::path& output) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw InputError("cannot start " + words.front() + ": " + std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw InputError("lost the bench program: " + std::string(std::strerror(errno)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct BenchCase {
  std::string name;
  double seconds = 1;  // estimated duration
};

// Parses "   0.5 s  latency/launch" of a dry run.
std::vector<BenchCase> cases_of(const std::string& listed, const std::string& filter) {
  std::optional<std::regex> wanted;
  try {
    if (!filter.empty()) wanted.emplace(filter);
  } catch (const std::regex_error&) {
    throw InputError("found --filter " + in_quotes(filter) + ", expected a regular expression");
  }
  std::vector<BenchCase> cases;
  for (const std::string_view line : split(listed, '\n')) {
    const std::size_t unit = line.find(" s  ");
    if (unit == std::string_view::npos) continue;
    const auto seconds = parse_number(trim(line.substr(0, unit)));
    const std::string name(trim(line.substr(unit + 4)));
    if (seconds && !name.empty() && (!wanted || std::regex_search(name, *wanted)))
      cases.push_back({name, *seconds});
  }
  return cases;
}

// Returns the name under which a benchmark was registered, from that in the results.
std::string registered(const std::string& result) {
  std::size_t end = result.size();
  for (const char* ending : {"/min_time:", "/manual_time", "/iterations:", "/repeats:", "/real_time"})
    end = std::min(end, result.find(ending));
  return result.substr(0, end);
}

std::string name_in(const ordered_json& row) {
  return row.contains("run_name") ? row.at("run_name").get<std::string>() : row.at("name").get<std::string>();
}

// Returns a regular expression that matches only these benchmarks.
std::string only(const std::vector<BenchCase>& cases) {
  std::string all;
  for (const BenchCase& one : cases) {
    all += all.empty() ? "^(" : "|";
    for (const char c : one.name) {
      if (std::string_view(".+*?()[]{}|^$\\").find(c) != std::string_view::npos) all += '\\';
      all += c;
    }
  }
  return all + ")(/min_time:.*|/manual_time.*|/iterations:.*|/repeats:.*)?$";
}

std::string duration(double seconds) {
  return seconds < 90 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

// The results so far, each part in one file that is complete or absent.
class Parts {
 public:
  Parts(const fs::path& folder, const std::string& stem) : folder_(folder / (stem + "-parts")) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error)
      throw InputError("cannot make the folder " + in_quotes(folder_.string()) + ": " + error.message());
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) take(file);
  }

  bool has(const std::string& name) const { return done_.contains(name); }
  std::size_t size() const { return done_.size(); }
  const ordered_json& merged() const { return merged_; }
  fs::path unfinished() const { return folder_ / "unfinished"; }

  void finish() {
    // The first run counts where a filter ran a benchmark twice.
    const fs::path file = folder_ / fmt::format("part-{:04}.json", ++last_);
    fs::rename(unfinished(), file);
    take(file);
  }

 private:
  void take(const fs::path& file) {
    ordered_json part;
    try {
      part = ordered_json::parse(read_own_file(file));
    } catch (const ordered_json::exception& error) {
      throw InputError({file.string(), 0, 0}, "no result of a bench program",
                       "one; remove it to measure it again");
    }
    const auto number =
        parse_int(file.stem().string().substr(std::min<std::size_t>(5, file.stem().string().size())));
    last_ = std::max(last_, static_cast<int>(number.value_or(0)));
    if (merged_.empty()) {
      merged_ = part;
      merged_["benchmarks"] = ordered_json::array();
    }
    for (const ordered_json& row : part.at("benchmarks")) {
      merged_["benchmarks"].push_back(row);
      done_.insert(registered(name_in(row)));
    }
  }

  fs::path folder_;
  ordered_json merged_ = ordered_json::object();
  std::set<std::string> done_;
  int last_ = 0;
};

// Returns one line for each suspicious row.
Table unusual(const ordered_json& results, const calibration::Measurements& rows) {
  constexpr double kThrottled = 0.85, kFar = 0.25;
  constexpr std::size_t kMost = 15;
  using Align = Table::Align;
  Table table({{"row", Align::kLeft}, {"measured_us"}, {"expected_us"}, {"what", Align::kLeft}});
  std::vector<std::pair<double, std::vector<std::string>>> far;
  const calibration::CheckReport report = calibration::check_rows(rows, calibration::built_in_of);
  for (const calibration::CheckedRow& row : report.rows) {
    const double off = std::log(row.measured / row.forecast.value);
    if (row.covered() || std::abs(off) < kFar) continue;
    far.push_back(
        {-std::abs(off),
         {fmt::format("{} {} {} {}", row.op, row.scope, row.sizes, row.ranks),
          fmt::format("{:.1f}", row.measured * 1e6), fmt::format("{:.1f}", row.forecast.value * 1e6),
          off > 0 ? "slower than the profile of this GPU expects" : "faster than expected"}});
  }
  std::sort(far.begin(), far.end());
  for (std::size_t i = 0; i < far.size() && i < kMost; ++i) table.row(far[i].second);
  if (far.size() > kMost)
    table.row({fmt::format("{} more rows", far.size() - kMost), "", "", "outside the interval"});
  std::size_t throttled = 0;
  double lowest = 1;
  for (const ordered_json& row : results.at("benchmarks")) {
    const double now = row.value("sm_MHz", 0.0), most = row.value("most_sm_MHz", 0.0);
    if (row.value("error_occurred", false))
      table.row({registered(name_in(row)), "", "", row.value("error_message", std::string("failed"))});
    // Sustained clocks are those of a hot GPU.
    const bool hot = name_in(row).find("clocks:sustained") != std::string::npos;
    if (hot || most <= 0 || now >= kThrottled * most) continue;
    ++throttled;
    lowest = std::min(lowest, now / most);
  }
  if (throttled > 0)
    table.row(
        {fmt::format("{} rows", throttled), "", "",
         fmt::format("throttled: the SMs ran at {:.0f} % of their clock at the slowest", 100 * lowest)});
  return table;
}

// Prints a profile's forecasts of rows before they are measured.
int print_forecast(const std::vector<BenchCase>& cases, const MeasureOptions& options) {
  const models::Profile profile = models::Profile::load(options.forecast);
  Table table(
      {{"row", Table::Align::kLeft}, {"law", Table::Align::kLeft}, {"forecast_us"}, {"low_us"}, {"high_us"}});
  for (const BenchCase& one : cases) {
    if (one.name.starts_with("latency/") || one.name.starts_with("overlap/")) continue;
    const ordered_json made{{"context", {{"gpu", profile.gpu()}}},
                            {"benchmarks", {{{"name", one.name}, {"real_time", 1.0}, {"time_unit", "us"}}}}};
    const auto row = calibration::import_google_benchmark(made.dump(), "the dry run", {}).rows;
    for (const calibration::CheckedRow& said :
         calibration::check_rows(row, [&](const std::string&) { return &profile; }).rows)
      table.row({one.name, said.law, fmt::format("{:.3f}", said.forecast.value * 1e6),
                 fmt::format("{:.3f}", said.forecast.low * 1e6),
                 fmt::format("{:.3f}", said.forecast.high * 1e6)});
  }
  print(table.csv());
  return 0;
}

class Measuring {
 public:
  Measuring(const MeasureOptions& options, const CommonOptions& common) : o_(options), common_(common) {
    bench_ = o_.program.empty() ? find_bench(o_.bench) : fs::path(o_.program);
    if (!o_.program.empty() && !o_.bench.empty())
      throw InputError("found --program and --bench, expected one of them");
    const bool host = bench_.filename() == "moesim-bench-host";
    if (o_.ranks > 1) {
      words_ = {"mpirun", "-n", std::to_string(o_.ranks), "--allow-run-as-root"};
      if (host)
        words_.emplace_back("--oversubscribe");
      else
        map_over_nodes();
    } else if (o_.gpus_per_node > 0) {
      throw InputError(
          "found --ranks-per-node without --ranks, expected the processes of several nodes, one a GPU");
    }
    words_.push_back(bench_.string());
    if (host && o_.brief)
      throw InputError("found --short with the host bench, expected it with the CUDA one");
    if (o_.brief) words_.emplace_back("--short");
  }

  const std::string& written() const { return written_; }

  int run_all() {
    std::error_code error;
    const fs::path folder = o_.dry_run ? fs::temp_directory_path() : fs::path(o_.out);
    fs::create_directories(folder, error);
    if (error) throw InputError("cannot make the folder " + in_quotes(o_.out) + ": " + error.message());
    const std::vector<BenchCase> cases = listed(folder);
    if (cases.empty())
      throw InputError("found no benchmark" +
                       (o_.filter.empty() ? std::string() : " that matches " + in_quotes(o_.filter)) +
                       ", expected one of --dry-run");
    if (!o_.forecast.empty()) return print_forecast(cases, o_);
    double seconds = 0;
    for (const BenchCase& one : cases) seconds += one.seconds;
    if (o_.dry_run) {
      std::string text;
      for (const BenchCase& one : cases) text += fmt::format("{:6.1f} s  {}\n", one.seconds, one.name);
      print(text + fmt::format("{} benchmarks, about {:.0f} s\n", cases.size(), seconds));
      return 0;
    }
    return measure(cases);
  }

 private:
  // One process per GPU on every node; process 0 is here, and the others find it by this name.
  void map_over_nodes() {
    if (o_.gpus_per_node == 0)
      throw InputError(fmt::format(
          "found --ranks {} without --ranks-per-node, expected the GPUs of a node (the GPUs of one "
          "node alone are measured without --ranks)",
          o_.ranks));
    if (o_.ranks % o_.gpus_per_node != 0)
      throw InputError(fmt::format("found --ranks {} with --ranks-per-node {}, expected a multiple", o_.ranks,
                                   o_.gpus_per_node));
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    for (const std::string& word :
         {std::string("--map-by"), fmt::format("ppr:{}:node", o_.gpus_per_node), std::string("--bind-to"),
          std::string("none"), std::string("-x"), std::string("MASTER_ADDR=") + name.data()})
      words_.push_back(word);
  }

  std::vector<BenchCase> listed(const fs::path& folder) const {
    std::vector<std::string> words = words_;
    words.emplace_back("--dry-run");
    const fs::path list = folder / fmt::format("dry-run-{}.txt", getpid());
    const int code = run(words, list);
    const std::string text = read_own_file(list);
    fs::remove(list);
    if (code != 0)
      throw InputError(fmt::format("{} --dry-run ended with exit code {}", bench_.string(), code));
    return cases_of(text, o_.filter);
  }

  void say_progress(std::size_t done, std::size_t all, double left) const {
    if (common_.quiet) return;
    say(fmt::format("{} of {} rows measured, about {} left\n", done, all, duration(left)));
  }

  int measure(const std::vector<BenchCase>& cases) {
    const std::string stem = bench_.filename().string() + fmt::format("-{}", o_.ranks);
    Parts parts(o_.out, stem);
    std::vector<BenchCase> left;
    for (const BenchCase& one : cases)
      if (!parts.has(one.name)) left.push_back(one);
    if (left.size() < cases.size() && !common_.quiet)
      say(fmt::format("{} of {} rows are there already\n", cases.size() - left.size(), cases.size()));
    const auto start = std::chrono::steady_clock::now();
    const auto spent = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    double planned = 0, todo = 0;
    for (const BenchCase& one : left) todo += one.seconds;
    std::size_t at = 0;
    while (at < left.size()) {
      // Seconds lost at most when the run is stopped.
      constexpr double kAtOnce = 20;
      std::vector<BenchCase> now;
      double seconds = 0;
      while (at < left.size() && (now.empty() || seconds + left[at].seconds <= kAtOnce)) {
        seconds += left[at].seconds;
        now.push_back(left[at++]);
      }
      if (o_.minutes > 0 && spent() + seconds > 60 * o_.minutes && planned > 0) {
        at -= now.size();
        break;
      }
      measure(now, parts);
      planned += seconds;
      say_progress(cases.size() - left.size() + at, cases.size(), (todo - planned) * spent() / planned);
    }
    return finish(parts, stem, left.size() - at);
  }

  void measure(const std::vector<BenchCase>& now, Parts& parts) const {
    std::vector<std::string> words = words_;
    words.push_back("--benchmark_filter=" + only(now));
    words.push_back("--benchmark_out=" + parts.unfinished().string());
    words.emplace_back("--benchmark_out_format=json");
    if (o_.min_time > 0) words.push_back(fmt::format("--benchmark_min_time={}", o_.min_time));
    const int code = run(words, "/dev/null");
    if (code != 0)
      throw InputError(
          fmt::format("{} ended with exit code {} at {}", bench_.string(), code, now.front().name));
    parts.finish();
  }

  int finish(const Parts& parts, const std::string& stem, std::size_t left) {
    const fs::path raw = fs::path(o_.out) / (stem + ".json");
    write_file(raw, json_text(parts.merged(), 1));
    const auto [rows, notes] = calibration::import_google_benchmark(read_own_file(raw), raw.string(), {});
    for (const std::string& one : notes) warn(common_, one);
    const fs::path measurements = fs::path(o_.out) / (stem + ".measurements.json");
    write_file(measurements,
               calibration::to_json(rows, "moesim calibrate measure: " + bench_.filename().string()));
    print(fmt::format("{}: {} rows{}\n", measurements.string(), rows.size(),
                      left > 0 ? fmt::format("; {} benchmarks are left: run it again to go on", left) : ""));
    const std::string text = unusual(parts.merged(), rows).text();
    if (std::count(text.begin(), text.end(), '\n') > 2) print("\nunusual:\n" + text);
    written_ = measurements.string();
    return 0;
  }

  const MeasureOptions& o_;
  const CommonOptions& common_;
  fs::path bench_;
  std::string written_;
  std::vector<std::string> words_;
};

}  // namespace

std::string measure_machine(const MeasureOptions& options, const CommonOptions& common) {
  Measuring measuring(options, common);
  measuring.run_all();
  return measuring.written();
}

void declare_bench(CLI::App& app, MeasureOptions& options) {
  app.add_option("--bench", options.bench, "cuda or host (default: cuda where it was built)")
      ->check(CLI::IsMember({"cuda", "host"}));
  app.add_option("--program", options.program, "The bench program itself (default: the one beside moesim)");
  app.add_option("--ranks", options.ranks,
                 "Processes, started with mpirun: of the host bench, or one a GPU on several nodes (the GPUs "
                 "of one node are "
                 "taken without it)")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--ranks-per-node", options.gpus_per_node, "With --ranks: processes on each node, one a GPU")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--short", options.brief, "The third of the cases that says most: two minutes on eight GPUs");
  app.add_option("--minutes", options.minutes, "Stop before this time is over; the same command goes on")
      ->check(CLI::Range(0.1, 1e4));
}

Run declare_measure(CLI::App& app) {
  auto options = std::make_shared<MeasureOptions>();
  app.add_option(
         "-o,--out", options->out,
         "Folder for the raw results and the measurement file; what is there already is not measured again")
      ->capture_default_str();
  declare_bench(app, *options);
  app.add_option("--filter", options->filter, "Regular expression of the benchmarks to run");
  app.add_option("--min-time", options->min_time, "Seconds per benchmark")->check(CLI::Range(0.001, 600.0));
  const CLI::Option dry =
      app.add_flag("--dry-run", options->dry_run, "List what would be measured, and about how long it takes");
  app.add_option("--forecast", options->forecast,
                 "With --dry-run: what this profile says of every row, as CSV")
      ->needs(dry);
  return [options](const CommonOptions& common) { return Measuring(*options, common).run_all(); };
}

}  // namespace moesim::tools
