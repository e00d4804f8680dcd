// One scenario, answered: the time of every dispatcher, of a layer or of a whole step, in one form for
// what-if questions, crossovers and sweeps.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/routing/overload.h"
#include "models/routing/routing_cache.h"
#include "models/workload/scenario.h"
#include "sim/graph/task_graph.h"

namespace moesim::replay {
class ComparisonCosts;
}

namespace moesim::tools {

struct Answer {
  std::string dispatcher;
  std::string error;  // why there is no forecast; then the rest is empty
  models::Estimate time_us;
  std::vector<double> draws_us;  // the same draws of the profile for all dispatchers and changes
  std::array<double, sim::kCategories> breakdown_us{};
  double tokens = 0;                           // that the time is for, all GPUs together
  std::int64_t gpus = 0;                       // that work on them
  double tx_mean_bytes = 0, tx_max_bytes = 0;  // per rank; scope layer
  models::Overload overload;                   // scope layer
  double mfu = 0;                              // scope step
  double outside_domain = 0;                   // share of the operations' time that was not measured
  double memory_bytes = 0;                     // of the fullest rank
  bool fits = true;
  std::string not_ranked;  // why it cannot be the fastest
  double cost = 0;         // of the time on its GPUs; 0 without prices

  bool ok() const { return error.empty(); }
  double tokens_per_s_per_gpu() const { return tokens / (time_us.value * 1e-6) / static_cast<double>(gpus); }
  double cost_per_million_tokens() const { return cost / tokens * 1e6; }
};

struct Evaluation {
  models::Scenario scenario;    // resolved
  std::vector<Answer> answers;  // in the order asked for
  int best = -1;                // the fastest of those that are ranked; -1: none has a forecast
  double probability = 1;       // share of the draws under which it is
  std::vector<std::string> warnings;

  const Answer* fastest() const { return best < 0 ? nullptr : &answers[static_cast<std::size_t>(best)]; }
};

// Prices of clusters, resolved once for many scenarios on the same few. Not for several threads at a time.
class CostCache {
 public:
  CostCache();
  ~CostCache();
  // Of a cluster under its seed and draws.
  const replay::ComparisonCosts& of(const std::shared_ptr<const models::Cluster>& cluster, std::uint64_t seed,
                                    int draws);

 private:
  struct Entry;
  std::vector<Entry> entries_;
};

struct EvaluationOptions {
  int draws = 48;  // 0: no intervals
  bool breakdown = true;
  // Where given; of all scenarios that name their cluster.
  CostCache* costs = nullptr;
  models::RoutingCache* routings = nullptr;
};

// Throws InputError where no dispatcher of the scenario can be forecast; one that is illegal beside others is
// an answer with its error.
Evaluation evaluate(models::Scenario scenario, const EvaluationOptions& options = {});

// Adds the warnings that are not there yet.
void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more);

// The difference of two times under the same draws, b - a, and their ratio b / a.
models::Estimate difference_us(const Answer& a, const Answer& b);
models::Estimate ratio(const Answer& a, const Answer& b);

}  // namespace moesim::tools
