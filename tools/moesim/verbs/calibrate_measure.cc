// `moesim calibrate measure`: runs the programs of calibration/bench and imports what they print.
#include "tools/moesim/verbs/calibrate_measure.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;

// The benches are built beside moesim; the GPU one wins where it exists.
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

int run(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (failed != 0) throw InputError("cannot start " + words.front() + ": " + std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw InputError("lost the bench program: " + std::string(std::strerror(errno)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Run declare_measure(CLI::App& app) {
  struct Options {
    std::string out = "raw", bench, filter;
    int ranks = 1;
    bool dry_run = false;
    double min_time = 0;
  };
  auto options = std::make_shared<Options>();
  app.add_option("-o,--out", options->out, "Folder for the raw results and the measurement file")
      ->capture_default_str();
  app.add_option("--bench", options->bench, "cuda or host (default: cuda where it was built)")
      ->check(CLI::IsMember({"cuda", "host"}));
  app.add_option("--ranks", options->ranks, "Processes, started with mpirun (host bench; several GPU nodes)")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--filter", options->filter, "Regular expression of the benchmarks to run");
  app.add_option("--min-time", options->min_time, "Seconds per benchmark")->check(CLI::Range(0.001, 600.0));
  app.add_flag("--dry-run", options->dry_run, "List what would be measured, and about how long it takes");
  return [options](const CommonOptions& common) {
    const fs::path bench = find_bench(options->bench);
    std::vector<std::string> words;
    if (options->ranks > 1)
      words = {"mpirun", "-n", std::to_string(options->ranks), "--oversubscribe", "--allow-run-as-root"};
    words.push_back(bench.string());
    if (!options->filter.empty()) words.push_back("--benchmark_filter=" + options->filter);
    if (options->dry_run) {
      words.push_back("--dry-run");
      return run(words) == 0 ? 0 : 2;
    }
    std::error_code error;
    fs::create_directories(options->out, error);
    if (error) throw InputError("cannot make the folder " + in_quotes(options->out) + ": " + error.message());
    const fs::path raw =
        fs::path(options->out) / (bench.filename().string() + fmt::format("-{}.json", options->ranks));
    words.push_back("--benchmark_out=" + raw.string());
    words.push_back("--benchmark_out_format=json");
    if (options->min_time > 0) words.push_back(fmt::format("--benchmark_min_time={}", options->min_time));
    if (common.quiet) words.push_back("--benchmark_counters_tabular=true");
    const int code = run(words);
    if (code != 0) throw InputError(fmt::format("{} ended with exit code {}", bench.string(), code));
    const auto rows = calibration::import_google_benchmark(read_own_file(raw), raw.string(), {});
    const fs::path measurements =
        fs::path(options->out) /
        (bench.filename().string() + fmt::format("-{}.measurements.json", options->ranks));
    write_file(measurements,
               calibration::to_json(rows, "moesim calibrate measure: " + bench.filename().string()));
    print(fmt::format("{}: {} rows\n", measurements.string(), rows.size()));
    return 0;
  };
}

}  // namespace moesim::tools
