// Searches the best legal plans for a model on a cluster over parallel sizes, dispatchers, recomputation,
// precision and execution, each with its step forecast.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/answers/answer.h"
#include "models/answers/plan_trial.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Budget of forecasts of a search: seconds of two cores, for the largest models and machines twenty.
inline constexpr std::int64_t kMostForecasts = 6000;

struct PlanSearchOptions : PlanLimits {
  // tp, cp, pp, vpp, ep, etp, dp and the size of a microbatch; the global batch is fixed
  bool parallel = true;
  bool dispatcher = true;   // every Megatron dispatcher; false: the scenario's
  bool recompute = true;    // none, the cheap modules, the MoE layer, everything; false: the scenario's
  bool precision = false;   // types that the GPU supports
  bool schedule = false;    // of the pipeline
  bool overlap = false;     // overlap of expert communication with another microbatch
  bool launch = false;      // kernel launches by the host or by CUDA graphs
  bool sharding = false;    // of the optimizer's state, or of parameters and gradients too
  bool keep_given = false;  // keeps values that the user gave
  int top = 10;             // number of plans returned, with intervals
  int draws = 16;           // for their intervals
  const Anchor* anchor = nullptr;  // anchor of a run of this kind, applied to the best plans
  int threads = 0;                 // 0: all cores
  // Approximate budget of forecasts. Where no plan that fits was found within it, the search goes on to the
  // first one.
  std::int64_t most = kMostForecasts;
  bool exhaustive = false;  // tries every combination instead, as the tests' reference
  // Called from time to time on the calling thread with the numbers of plans done and in total.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

struct RankedPlan {
  std::shared_ptr<const Scenario> scenario;  // resolved, one dispatcher
  Answer answer;
  // Share of the draws in which it is the fastest of those returned, as decide() counts; 1 without draws for
  // the first.
  double probability = 1;
  int tie_group = 0;  // plans of one group cannot be told apart

  double per_token() const { return answer.time_us.value / answer.tokens; }
};

struct PlanSearchResult {
  std::vector<RankedPlan> best;  // fastest first, by time per token
  std::int64_t candidates = 0;   // combinations of the axes
  std::int64_t forecast = 0;     // legal combinations that were forecast (under memory: that fit)
  std::int64_t illegal = 0;
  std::int64_t does_not_fit = 0;
  std::int64_t slower = 0;   // ruled out as no faster than the best
  std::int64_t skipped = 0;  // neither tried nor ruled out
  // The share of the best plan's time by which one of the combinations may be faster at most.
  double gap = 0;
  std::map<std::string, std::int64_t> rules;  // number of illegal plans by rule
  // Dispatchers without a measured kernel, whose plans the search left out.
  std::set<std::string> unmeasured;
  // Why nothing was found: the size in the way and the nearest one that would do, the rule that most plans break,
  // or the memory; empty with a best plan.
  std::string none;
  std::string method;  // one sentence on what was tried and what was left out
  std::string space;   // axes of the combinations and their values

  bool too_large() const { return best.empty() && does_not_fit + forecast > 0; }  // legal plans do not fit
  // Throws InputError with `none`.
  const RankedPlan& fastest() const;
};

// GPUs that the weights with their optimizer state surely need, however they are shared out.
std::int64_t fewest_gpus(const Scenario& scenario);

// Throws InputError where the scenario contradicts itself, whatever the plan.
PlanSearchResult search_plans(const Scenario& scenario, const PlanSearchOptions& options);

// Returns a setting as a user writes it, by its path; "" where it has no value.
std::string setting_text(const Scenario& scenario, std::string_view path);

// Returns what a search changed in a plan as options: "--tp 1 --pp 8 --ep 64 --recompute full".
std::string plan_options(const Scenario& scenario);

}  // namespace moesim::models
