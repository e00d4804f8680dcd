// Dispatchers side by side for one MoE layer: time with its interval, breakdown, bytes, memory, overload, the
// winner and why it wins.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/programs/memory.h"
#include "models/programs/program.h"
#include "models/routing/overload.h"
#include "models/routing/routing.h"
#include "models/routing/routing_cache.h"
#include "models/step/parameter_collectives.h"
#include "models/workload/scenario.h"
#include "replay/run/layer_flow.h"
#include "replay/run/layer_forecast.h"
#include "sim/graph/task_graph.h"
#include "sim/run/simulator.h"

namespace moesim::replay {

struct DispatcherForecast {
  std::string dispatcher;  // as asked for, with options
  models::Program program;
  models::Estimate time_us;
  std::array<double, sim::kCategories> breakdown_us{};  // of the critical rank, adds up to time_us.value
  double healthy_us = 0;                                // without the scenario's faults
  int critical_rank = 0;
  double outside_domain = 0;           // share of its operations' time that the profile did not measure
  std::vector<std::int64_t> tx_bytes;  // per rank, forward and backward
  int host_syncs_forward = 0, host_syncs_backward = 0;
  models::MemoryForecast memory;
  // What the worst rank holds over the time of the layer; the same rank's clock. Of ComparisonOptions::trace.
  struct MemorySample {
    double time_us = 0;
    models::MemoryPoint point;
  };
  std::vector<MemorySample> memory_over_time;
  models::Program dense;  // what is around the dispatcher's program
  // Of ComparisonOptions::trace: dense forward, forward, and in training backward, dense backward.
  std::vector<SegmentTrace> trace;
  // Of timing `flow`: the time without contention, how many dispatch groups ran side by side, the busiest
  // link.
  struct Network {
    double calibrated_us = 0;
    int groups = 0;  // 0: timing was calibrated
    LinkLoad busiest;
  };
  Network network;
  models::Overload overload;
  std::string not_ranked;  // why it cannot win: it does other work than what was asked for; empty: it can
  std::vector<double> draws_us;  // the time under each drawn profile, the same draws for all dispatchers
};

struct ExcludedDispatcher {
  std::string dispatcher;
  std::string rule;
};

// A collective of parameters, gradients or the optimizer on one pipeline stage, per training step.
struct StepCollective {
  models::ParameterCollective what;
  double time_us = 0;  // of all its calls, one after the other and alone
};

struct LayerComparison {
  models::Scenario scenario;  // resolved
  models::Routing routing;
  std::vector<DispatcherForecast> forecasts;  // in the order asked for
  std::vector<ExcludedDispatcher> excluded;
  std::vector<StepCollective> step_collectives;  // where the scenario says how parameters are sharded
  int winner = 0;                                // index into forecasts
  int runner_up = -1;                            // -1 when there is one dispatcher only
  models::Estimate speedup;                      // of the winner over the runner-up
  double probability = 1;  // share of the drawn profiles under which the winner is the fastest
  std::string because;
  std::vector<std::string> warnings;
};

// A cluster's prices and those under drawn profiles, resolved once for many comparisons on the same cluster
// with the same seed.
class ComparisonCosts {
 public:
  ComparisonCosts(const models::Cluster& cluster, std::uint64_t seed, int draws);
  ~ComparisonCosts();
  ComparisonCosts(ComparisonCosts&&) noexcept;
  ComparisonCosts& operator=(ComparisonCosts&&) noexcept;

 private:
  friend LayerComparison compare_layer(models::Scenario scenario, const struct ComparisonOptions& options);
  struct Prices;
  std::vector<Prices> prices_;  // the profile's own first
};

struct ComparisonOptions {
  int draws = 48;  // of the profile, for intervals and the winner's probability; 0: none, low = high = value
  bool breakdown = true;
  sim::Timing timing =
      sim::Timing::calibrated;  // or flow: on the cluster's fabric, all dispatch groups at once
  bool trace = false;           // when every operation ran, and memory over time
  // Of the scenario's cluster, its seed and at least as many draws; null: made for this comparison.
  const ComparisonCosts* costs = nullptr;
  models::RoutingCache* routings = nullptr;  // null: drawn for this comparison
};

// Throws InputError for a scenario that does not fit together, and when no dispatcher is legal.
LayerComparison compare_layer(models::Scenario scenario, const ComparisonOptions& options = {});

}  // namespace moesim::replay
