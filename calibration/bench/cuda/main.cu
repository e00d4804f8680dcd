// moesim-bench-cuda: everything a profile is fitted to, measured on this machine; standard Google Benchmark
// output. It has been compiled, and has not run on a GPU yet (calibration/bench/README.md).
#ifdef MOESIM_BENCH_MPI
#include <mpi.h>
#endif

#include <cstdio>
#include <cstring>

#include "device.h"
#include "follow.h"

namespace moesim::bench {
namespace {

constexpr int kStop = -1;
std::vector<Followed>& followed() {
  static std::vector<Followed> cases;
  return cases;
}

}  // namespace

#ifdef MOESIM_BENCH_MPI
int process_index() {
  int index = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &index);
  return index;
}
int process_count() {
  int count = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  return count;
}
void broadcast(void* data, std::size_t bytes) {
  MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}
bool all_agree(bool yes) {
  int mine = yes, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}
double slowest(double seconds) {
  double result = seconds;
  MPI_Allreduce(&seconds, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return result;
}
#else
int process_index() { return 0; }
int process_count() { return 1; }
void broadcast(void*, std::size_t) {}
bool all_agree(bool yes) { return yes; }
double slowest(double seconds) { return seconds; }
#endif

bool keep_running(benchmark::State* state) {
  int more = state ? static_cast<int>(state->KeepRunning()) : 0;
  broadcast(&more, sizeof more);
  return more != 0;
}

void add_followed_case(std::vector<Case>& cases, const std::string& name, double seconds,
                       const Followed& run) {
  const int which = static_cast<int>(followed().size());
  followed().push_back(run);
  add_case(cases, name, seconds, [run, which](benchmark::State& state) {
    int called = which;
    broadcast(&called, sizeof called);
    run(&state);
  });
}

void follow() {
  for (;;) {
    int which = kStop;
    broadcast(&which, sizeof which);
    if (which == kStop) return;
    followed()[static_cast<std::size_t>(which)](nullptr);
  }
}

void stop_followers() {
  int stop = kStop;
  broadcast(&stop, sizeof stop);
}

}  // namespace moesim::bench

int main(int argc, char** argv) {
  using namespace moesim::bench;
#ifdef MOESIM_BENCH_MPI
  MPI_Init(&argc, &argv);
#endif
  bool dry_run = false;
  for (int i = 1; i < argc; ++i) dry_run = dry_run || std::strcmp(argv[i], "--dry-run") == 0;
  int gpus = 0;
  const bool none = cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0;
  if (none && !dry_run) {
    std::fprintf(stderr, "moesim-bench-cuda: no GPU found\n");
    return 1;
  }
  std::vector<Case> cases;
  register_latencies(cases);
  register_kernels(cases);
  register_gemms(cases);
  if (!none) register_collectives(cases, argc, argv);
  if (dry_run) {
    double seconds = 0;
    for (const Case& each : cases) {
      std::printf("%6.1f s  %s\n", each.seconds, each.name.c_str());
      seconds += each.seconds;
    }
    std::printf(
        "%zu benchmarks, about %.0f s%s\n", cases.size(), seconds,
        none ? "; no GPU here, so the collectives (5 operations x 21 sizes per sub-group) are not listed"
             : "");
  } else {
    cudaDeviceProp properties;
    require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    int driver = 0, runtime = 0;
    require(cudaDriverGetVersion(&driver), "driver version");
    require(cudaRuntimeGetVersion(&runtime), "runtime version");
    benchmark::AddCustomContext("gpu", canonical_gpu(properties.name));
    benchmark::AddCustomContext("device", properties.name);
    benchmark::AddCustomContext("gpus", std::to_string(gpus));
    benchmark::AddCustomContext("cuda_driver", std::to_string(driver));
    benchmark::AddCustomContext("cuda_runtime", std::to_string(runtime));
    benchmark::AddCustomContext("state_before", machine_state());
    if (process_index() == 0) {
      benchmark::Initialize(&argc, argv);
      benchmark::RunSpecifiedBenchmarks();
      stop_followers();
      std::fprintf(stderr, "state after: %s\n", machine_state().c_str());
    } else {
      follow();
    }
  }
#ifdef MOESIM_BENCH_MPI
  MPI_Finalize();
#endif
  return 0;
}
