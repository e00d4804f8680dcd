// Counters of every benchmark besides its time: the simulated time, and the peak memory of the process. Run
// one at a time (--benchmark_filter=^name$), as tools/bench.sh does, to get the peak of that workload alone.
#pragma once

#include <benchmark/benchmark.h>
#include <sys/resource.h>

namespace moesim::bench {

inline void report(benchmark::State& state, double simulated_us) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_bytes"] = static_cast<double>(usage.ru_maxrss) * 1024.0;
  state.counters["simulated_us"] = simulated_us;
}

// A main() that has registered its benchmarks ends with this.
inline int run_registered(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace moesim::bench
