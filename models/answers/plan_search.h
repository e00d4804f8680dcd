// The best legal plans for a model on a cluster: parallel sizes, dispatchers, recomputation, precision and
// how the passes run, tried against each other, each with the step forecast.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/workload/scenario.h"

namespace moesim::models {

struct PlanSearchOptions {
  bool parallel = true;  // tp, cp, pp, vpp, ep, etp, dp and the size of a microbatch; the global batch stays
  bool dispatcher = true;    // every Megatron dispatcher; otherwise the scenario's
  bool recompute = true;     // none, the cheap modules, the MoE layer, everything; otherwise the scenario's
  bool precision = false;    // what the GPU has
  bool schedule = false;     // of the pipeline
  bool overlap = false;      // of expert communication with the other microbatch
  bool launch = false;       // by the host or by CUDA graphs
  bool sharding = false;     // of the optimizer's state, or of everything
  bool keep_given = false;   // what somebody said of these stays as it is
  bool under_memory = true;  // plans that fit with a probability under Decision::kSure are left out
  int top = 10;              // plans that are returned, with intervals
  int draws = 16;            // for the intervals of those
  const Anchor* anchor = nullptr;  // of a run of this kind, which the best are answered by
  int threads = 0;                 // 0: all cores
  // Forecasts, about: where they are spent before any plan that fits was found, the search goes on to the
  // first.
  std::int64_t most = 40'000;
  bool exhaustive = false;           // tries every combination instead, against which tests hold the search
  std::vector<std::string> without;  // dispatchers that are left out
  // Plans of another search that the search also starts from: as many of their choices as this space has.
  std::vector<std::shared_ptr<const Scenario>> seeds;
  // Called now and then, from the thread that called, with plans done and to do.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

struct RankedPlan {
  std::shared_ptr<const Scenario> scenario;  // resolved, one dispatcher
  Answer answer;
  // Share of the draws under which it is the fastest of those returned, as decide() counts; 1 without draws
  // for the first.
  double probability = 1;
  int tie_group = 0;  // plans of one group are not told apart
};

struct PlanSearchResult {
  std::vector<RankedPlan> best;  // fastest first, by time per token
  std::int64_t candidates = 0;   // combinations of the axes
  std::int64_t forecast = 0;     // legal, and (under memory) fitting: forecast
  std::int64_t illegal = 0;
  std::int64_t does_not_fit = 0;
  std::int64_t slower = 0;   // ruled out: no faster than the best
  std::int64_t skipped = 0;  // neither tried nor ruled out
  // The share of the best plan's time by which one of the combinations may be faster at most.
  double gap = 0;
  std::map<std::string, std::int64_t> rules;  // what made plans illegal, by rule
  std::string method;                         // one sentence on what was tried and what was not
  std::string space;                          // which values of which axes the combinations are of
};

// GPUs that the weights with their optimizer state surely need, however they are shared out.
std::int64_t fewest_gpus(const Scenario& scenario);

// Throws InputError for a scenario that has no legal plan, which says what of it cannot be met and what comes
// nearest.
PlanSearchResult search_plans(const Scenario& scenario, const PlanSearchOptions& options);

// What a search changed of a plan, as on a command line: "--tp 1 --pp 8 --ep 64 --recompute full".
std::string plan_options(const Scenario& scenario);

}  // namespace moesim::models
