// The simulator's workloads as benchmarks. Each reports simulated_us, and peak_bytes of the process: run one
// at a time
// (--benchmark_filter=^name$) to get the peak of that workload alone, as tools/bench.sh does.
#include <benchmark/benchmark.h>

#include <string>

#include "sim/run/simulator.h"
#include "tests/bench/report.h"
#include "tests/bench/workloads.h"

namespace moesim::bench {
namespace {

using sim::Algorithm;

using MakeGraph = sim::TaskGraph (*)(std::uint32_t);
using MakeFabric = sim::Fabric (*)(std::uint32_t);

// Graph, prices and timeline are part of what is timed; the fabric is not.
void add_flows(const std::string& name, MakeGraph graph, Algorithm algorithm, MakeFabric fabric,
               double window, std::initializer_list<std::uint32_t> sizes) {
  for (const std::uint32_t n : sizes)
    benchmark::RegisterBenchmark((name + "/" + std::to_string(n)).c_str(), [=](benchmark::State& state) {
      const sim::Fabric network = fabric(n);
      double simulated = 0;
      for (auto _ : state) {
        sim::RunOptions options;
        options.timing = sim::Timing::flow;
        options.fabric = &network;
        options.flow_window = window;
        simulated = sim::run(graph(n), PlanCosts(plan(algorithm)), options).iteration().us();
      }
      report(state, simulated);
    })->Unit(benchmark::kMillisecond);
}

void add_all() {
  add_flows("w3-flat", all_to_all_equal, Algorithm::pairwise, flat, 0, {1024});
  add_flows("w3-island", all_to_all_equal, Algorithm::pairwise, island, 0, {256, 1024});
  add_flows("w3-2:1", all_to_all_equal, Algorithm::pairwise, fat_tree, 0, {256, 1024});
  add_flows("w1s-island", all_to_all_unequal, Algorithm::pairwise, island, 0, {256});
  // All at once: equal messages exactly, a million unequal ones in windows of time.
  add_flows("w1n", all_to_all_equal, Algorithm::direct, flat, 0, {256});
  add_flows("w1n-island", all_to_all_equal, Algorithm::direct, island, 0, {256});
  add_flows("w1n", all_to_all_unequal, Algorithm::direct, flat, kWindow, {1024});
  add_flows("w1n-island", all_to_all_unequal, Algorithm::direct, island, kWindow, {1024});
  add_flows("w1n-unequal", all_to_all_unequal, Algorithm::direct, flat, kWindow, {64});
  add_flows("w1n-unequal-island", all_to_all_unequal, Algorithm::direct, island, kWindow, {64});
}

}  // namespace
}  // namespace moesim::bench

int main(int argc, char** argv) {
  moesim::bench::add_all();
  return moesim::bench::run_registered(argc, argv);
}
