// Benchmarks of models::answer(), which `compare`, `whatif`, `sweep` and `--best` use. step: DeepSeek-V3 on
// PP16 EP64 with 60 microbatches, one dispatcher, no draws of the profile, its routing drawn for every layer
// and microbatch or balanced, step-flow with all groups at once on the fabric; forecasts: scenarios that
// differ in their top-k, as in a sweep.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "models/answers/answer.h"
#include "models/answers/priced_draws.h"
#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"
#include "tests/bench/report.h"

namespace moesim::bench {
namespace {

using models::Scenario;

Scenario deepseek_v3(std::int64_t gpus, const std::string& routing) {
  Scenario s;
  s.set_model("deepseek-v3");
  s.set_cluster("dgx-h100x" + std::to_string(gpus / 8));
  s.set_dispatchers("alltoall");
  s.routing = models::RoutingSpec::parse(routing);
  s.scope = Scenario::Scope::kStep;
  s.parallel.ep = 64;
  s.parallel.pp = 16;
  s.parallel.microbatches = 60;
  return s;
}

void add_step(const std::string& name, const std::string& routing, std::int64_t gpus, bool flow = false) {
  benchmark::RegisterBenchmark((name + "/" + std::to_string(gpus)).c_str(), [=](benchmark::State& state) {
    double simulated = 0;
    for (auto _ : state)
      simulated = models::answer(deepseek_v3(gpus, routing), {.draws = 0, .flow = flow})
                      .answers.front()
                      .time_us.value;
    report(state, simulated);
  })->Unit(benchmark::kMillisecond);
}

void add_forecasts(const std::string& name, Scenario::Scope scope, const std::string& routing) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    models::PriceCache prices;
    models::RoutingCache routings;
    Scenario s;
    s.set_model("qwen3-30b-a3b");
    s.set_cluster("dgx-h100x4");
    s.set_dispatchers("alltoall");
    s.routing = models::RoutingSpec::parse(routing);
    s.scope = scope;
    s.parallel.ep = 8;
    double simulated = 0;
    std::int64_t count = 0;
    for (auto _ : state) {
      Scenario one = s;
      one.topk = 1 + count++ % 8;
      simulated = models::answer(one, {.draws = 0, .prices = &prices, .routings = &routings})
                      .answers.front()
                      .time_us.value;
    }
    state.counters["scenarios_per_second"] =
        benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsRate);
    report(state, simulated);
  })->Unit(benchmark::kMillisecond);
}

void add_all() {
  for (const std::int64_t gpus : {2048, 16384, 131072}) {
    add_step("step", "zipf:0.8", gpus);
    add_step("step-balanced", "balanced", gpus);
  }
  for (const std::int64_t gpus : {1024, 16384}) add_step("step-flow", "balanced", gpus, true);
  add_forecasts("forecasts/layer", Scenario::Scope::kLayer, "balanced");
  add_forecasts("forecasts/layer-skewed", Scenario::Scope::kLayer, "zipf:0.8");
  add_forecasts("forecasts/step", Scenario::Scope::kStep, "balanced");
  add_forecasts("forecasts/step-skewed", Scenario::Scope::kStep, "zipf:0.8");
}

}  // namespace
}  // namespace moesim::bench

int main(int argc, char** argv) {
  moesim::bench::add_all();
  return moesim::bench::run_registered(argc, argv);
}
