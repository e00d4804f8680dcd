// The best legal plans for a model on a cluster: parallel sizes, dispatchers and recomputation tried against
// each other, each with the step forecast.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/workload/scenario.h"

namespace moesim::models {

struct PlanSearchOptions {
  bool parallel = true;  // tp, cp, pp, vpp, ep, etp, dp and the size of a microbatch; the global batch stays
  bool dispatcher = true;      // every Megatron dispatcher; otherwise the scenario's
  bool recompute = true;       // none, the cheap modules, the MoE layer, everything; otherwise the scenario's
  bool under_memory = true;    // plans that fit with a probability under Decision::kSure are left out
  int top = 10;                // plans that are returned, with intervals
  int draws = 16;              // for the intervals of those
  int threads = 0;             // 0: all cores
  std::int64_t most = 20'000;  // forecasts at most; beyond, only the plans nearest to the best are refined
  // Called now and then, from the thread that called, with plans done and to do.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

struct RankedPlan {
  std::shared_ptr<const Scenario> scenario;  // resolved, one dispatcher
  Answer answer;
};

struct PlanSearchResult {
  std::vector<RankedPlan> best;  // fastest first
  std::int64_t candidates = 0;   // combinations of the axes
  std::int64_t forecast = 0;     // legal, and (under memory) fitting: forecast
  std::int64_t illegal = 0;
  std::int64_t does_not_fit = 0;
  std::int64_t skipped = 0;                   // neither tried nor ruled out
  std::map<std::string, std::int64_t> rules;  // what made plans illegal, by rule
  std::string method;                         // one sentence on what was tried and what was not
  std::string space;                          // which values of which axes the combinations are of
};

// Throws InputError for a scenario that has no legal plan.
PlanSearchResult search_plans(const Scenario& scenario, const PlanSearchOptions& options);

}  // namespace moesim::models
