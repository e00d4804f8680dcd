// moesim-bench-cuda: everything a profile is fitted to, measured on this machine; standard Google Benchmark
// output. It runs against the virtual GPU of the tests, and has not run on a real one yet
// (calibration/bench/README.md).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <ostream>

#include "cutlass_grouped.h"
#include "device.h"
#include "ranks.h"

namespace {

using namespace moesim::bench;

constexpr const char* kHelp =
    "moesim-bench-cuda [--dry-run] [--short] [--gpus N] [--time-limit S] [--benchmark_filter=REGEX] "
    "[--benchmark_out=FILE "
    "--benchmark_out_format=json]\n"
    "  --dry-run          lists the cases and about how long each takes\n"
    "  --short            a third of the cases, those that say most\n"
    "  --gpus N           processes to start on this node, one a GPU (default: every GPU); under mpirun, "
    "srun or\n"
    "                     torchrun these are the processes\n"
    "  --time-limit S     begins no case after so many seconds\n"
    "  --benchmark_min_time=S  seconds that a case is measured (default 0.1)\n";

struct Options {
  bool dry_run = false;
  int gpus = 0;
};

// Takes our options out of argv; what is left is Google Benchmark's.
Options take_options(int& argc, char** argv) {
  Options options;
  int kept = 1;
  const auto bad = [](const std::string& found, const char* expected) {
    std::fprintf(stderr, "moesim-bench-cuda: found %s, expected %s\n", found.c_str(), expected);
    std::exit(2);
  };
  const auto number = [&](const char* name, const char* text) {
    char* end = nullptr;
    const double value = text ? std::strtod(text, &end) : 0;
    if (!text || end == text || (*end && std::strcmp(end, "s") != 0) || !(value > 0))
      bad(std::string(name) + " " + (text ? text : "without a value"), "a positive number");
    return value;
  };
  for (int i = 1; i < argc; ++i) {
    constexpr const char* kMinTime = "--benchmark_min_time=";
    if (std::strcmp(argv[i], "--help") == 0) {
      std::fputs(kHelp, stdout);
      std::exit(0);
    } else if (std::strcmp(argv[i], "--dry-run") == 0) {
      options.dry_run = true;
    } else if (std::strcmp(argv[i], "--short") == 0) {
      limits().brief = true;
    } else if (std::strcmp(argv[i], "--gpus") == 0) {
      options.gpus = static_cast<int>(number("--gpus", argv[i + 1]));
      ++i;
    } else if (std::strcmp(argv[i], "--time-limit") == 0) {
      limits().all = number("--time-limit", argv[i + 1]);
      ++i;
    } else if (std::strncmp(argv[i], kMinTime, std::strlen(kMinTime)) == 0) {
      limits().budget = number(kMinTime, argv[i] + std::strlen(kMinTime));
    } else if (std::strncmp(argv[i], "--benchmark_", 12) == 0) {
      argv[kept++] = argv[i];
    } else {
      bad(argv[i], "one of --help");
    }
  }
  argc = kept;
  return options;
}

void say(const std::string& line) { std::fprintf(stderr, "moesim-bench-cuda: %s\n", line.c_str()); }

// The GPU of this process: each its own.
void take_gpu() {
  int gpus = 0;
  require(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  // A launcher may show each process one GPU only.
  const int mine = gpus == 1 ? 0 : ranks().on_node;
  if (mine >= gpus)
    fail("GPUs", ("found " + std::to_string(mine + 1) + " processes on this node and " +
                  std::to_string(gpus) + " GPUs, expected one process a GPU")
                     .c_str());
  require(cudaSetDevice(mine), "cudaSetDevice");
  const std::string place = ranks().nodes[static_cast<std::size_t>(ranks().index)] + " " + place_of_gpu();
  std::map<std::string, int> users;
  const std::vector<std::string> places = all_of(place);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (const auto [at, added] = users.try_emplace(places[i], static_cast<int>(i)); !added)
      fail("GPUs", ("processes " + std::to_string(at->second) + " and " + std::to_string(i) +
                    " have the same GPU, expected one process a GPU: map processes over nodes")
                       .c_str());
}

// Reports conditions that would spoil the numbers, one line each.
void warn_of_machine(const std::vector<std::string>& foreign, int gpus) {
  for (std::size_t i = 0; i < foreign.size(); ++i)
    if (!foreign[i].empty())
      say("GPU of process " + std::to_string(i) + ": another process computes on it (pid " + foreign[i] +
          "), times will be wrong");
  for (int a = 0; a < gpus; ++a)
    for (int b = a + 1; b < gpus; ++b) {
      int can = 1;
      require(cudaDeviceCanAccessPeer(&can, a, b), "peer access");
      if (can) continue;
      say("GPUs " + std::to_string(a) + " and " + std::to_string(b) +
          " have no access to each other's memory: collectives go through the host");
      return;
    }
}

std::string joined(const std::vector<std::string>& texts) {
  std::map<std::string, int> count;
  for (const std::string& text : texts) ++count[text];
  std::string all;
  for (const auto& [text, times] : count)
    all += (all.empty() ? "" : "; ") + text + (count.size() > 1 ? " x" + std::to_string(times) : "");
  return all;
}

void add_context() {
  cudaDeviceProp properties;
  int device = 0, gpus = 0, driver = 0, runtime = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  require(cudaDriverGetVersion(&driver), "driver version");
  require(cudaRuntimeGetVersion(&runtime), "runtime version");
  // Before this process has a context, those on the GPU are others'.
  const std::vector<std::string> names = all_of(properties.name);
  for (std::size_t i = 1; i < names.size(); ++i)
    if (names[i] != names[0])
      fail("GPUs", ("process 0 has " + names[0] + " and process " + std::to_string(i) + " " + names[i] +
                    ", expected one kind of GPU")
                       .c_str());
  if (ranks().index > 0) return;
  int nccl = 0;
  require(ncclGetVersion(&nccl), "ncclGetVersion");
  benchmark::AddCustomContext("gpu", names[0]);
  benchmark::AddCustomContext("gpus", std::to_string(ranks().count));
  benchmark::AddCustomContext("nodes", joined(ranks().nodes));
  benchmark::AddCustomContext("cuda_driver", std::to_string(driver));
  benchmark::AddCustomContext("cuda_runtime", std::to_string(runtime));
  benchmark::AddCustomContext("cublas", std::to_string(CUBLAS_VERSION));
  benchmark::AddCustomContext("nccl", std::to_string(nccl));
  benchmark::AddCustomContext("cutlass", kHasCutlass ? "built in" : "not built in");
}

int print_list(const std::vector<Case>& cases, bool without_gpu) {
  double seconds = 0;
  for (const Case& each : cases) {
    std::printf("%6.1f s  %s\n", each.seconds, each.name.c_str());
    seconds += each.seconds;
  }
  std::printf("%zu benchmarks, about %.0f s%s\n", cases.size(), seconds,
              without_gpu ? "; no GPU here, so the collectives of several are not listed" : "");
  if (!kHasCutlass)
    std::printf("without CUTLASS's grouped products: its headers were not found when this was built\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Processes started below begin with the same words.
  const std::vector<char*> words(argv, argv + argc + 1);
  std::vector<char*> again = words;
  const Options options = take_options(argc, argv);
  int gpus = 0;
  const bool none = cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0;
  if (none && !options.dry_run) {
    say("found no GPU, expected one");
    return 1;
  }
  if (options.gpus > gpus && !none) {
    say("found --gpus " + std::to_string(options.gpus) + ", expected at most the " + std::to_string(gpus) +
        " of this node");
    return 2;
  }
  std::vector<Case> cases;
  const int own = options.gpus > 0 ? options.gpus : gpus;
  join_ranks(options.dry_run ? 1 : own, again.data());
  if (!none) take_gpu();
  if (options.dry_run) {
    register_latencies(cases);
    register_kernels(cases);
    register_gemms(cases);
    if (!none) register_collectives(cases, ranks().node_count(), std::max(own, ranks().count));
    return ranks().index > 0 ? 0 : print_list(cases, none);
  }
  std::string foreign;
  for (const unsigned pid : processes_on_gpu())
    if (static_cast<pid_t>(pid) != getpid()) foreign += (foreign.empty() ? "" : ", ") + std::to_string(pid);
  const std::vector<std::string> all_foreign = all_of(foreign);
  register_latencies(cases);
  register_kernels(cases);
  register_gemms(cases);
  register_collectives(cases, ranks().node_count(), ranks().count);
  add_context();
  if (ranks().index > 0) {
    follow();
    return 0;
  }
  warn_of_machine(all_foreign, std::min(gpus, ranks().count));
  benchmark::Initialize(&argc, argv);
  // The file contains the library's description of the host; standard error is for problems.
  std::ostream nowhere(nullptr);
  benchmark::ConsoleReporter reporter;
  reporter.SetErrorStream(&nowhere);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  stop_followers();
  return 0;
}
