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
#include <vector>

#include "models/answers/answer.h"
#include "models/answers/priced_draws.h"
#include "models/step/forecast.h"
#include "models/step/step_forecast.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// The answer of a search to one candidate: time and memory of a step without draws, doubt and breakdown.

// All layers and microbatches share one routing, which ranks candidates well enough; for such a scenario
// answer() gives the same time and memory, and searches answer() their best candidates with their own
// routings. Nothing is timed before it is asked for. Thread-safe for one `prices`.
class QuickAnswer {
 public:
  // `scenario` must be resolved; `prices` must outlive it. Throws InputError as StepForecaster does.
  QuickAnswer(Scenario scenario, const DispatcherSpec& dispatcher, PriceCache& prices)
      : forecaster_(with_one_routing(scenario), dispatcher), prices_(prices) {}
  // For the scenario's first dispatcher.
  QuickAnswer(Scenario scenario, PriceCache& prices)
      : forecaster_(with_one_routing(scenario), scenario.dispatchers.front()), prices_(prices) {}

  const Scenario& scenario() const { return forecaster_.scenario(); }
  const MoeProgram& moe() const { return *forecaster_.programs().first(); }
  bool measured_exchanges() const { return prices()->nominal().measures_exchanges(moe().program); }
  StepMemory memory() const { return forecaster_.memory(); }
  double seconds() const { return forecaster_.seconds(prices()->nominal()); }
  double seconds_per_token() const { return seconds() / forecaster_.tokens(); }
  // Returns the breakdown, too.
  Forecast forecast() const { return forecaster_.forecast(prices()->nominal()); }

 private:
  static const Scenario& with_one_routing(Scenario& s) {
    s.routing.shared = true;
    return s;
  }
  std::shared_ptr<const PricedDraws> prices() const { return prices_.of(scenario(), 0); }

  StepForecaster forecaster_;
  PriceCache& prices_;
};

struct PlanSearchOptions {
  // tp, cp, pp, vpp, ep, etp, dp and the size of a microbatch; the global batch is fixed
  bool parallel = true;
  bool dispatcher = true;    // every Megatron dispatcher; false: the scenario's
  bool recompute = true;     // none, the cheap modules, the MoE layer, everything; false: the scenario's
  bool precision = false;    // types that the GPU supports
  bool schedule = false;     // of the pipeline
  bool overlap = false;      // overlap of expert communication with another microbatch
  bool launch = false;       // kernel launches by the host or by CUDA graphs
  bool sharding = false;     // of the optimizer's state, or of parameters and gradients too
  bool keep_given = false;   // keeps values that the user gave
  bool under_memory = true;  // leaves out plans that fit with a probability below Decision::kSure
  bool measured = false;     // leaves out plans whose dispatch kernels nobody measured on the machine
  int top = 10;              // number of plans returned, with intervals
  int draws = 16;            // for their intervals
  const Anchor* anchor = nullptr;  // anchor of a run of this kind, applied to the best plans
  int threads = 0;                 // 0: all cores
  // Approximate budget of forecasts. Where no plan that fits was found within it, the search goes on to the
  // first one.
  std::int64_t most = 40'000;
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
  std::string method;  // one sentence on what was tried and what was left out
  std::string space;   // axes of the combinations and their values
};

// GPUs that the weights with their optimizer state surely need, however they are shared out.
std::int64_t fewest_gpus(const Scenario& scenario);

// Throws InputError for a scenario without a legal plan; the message names the size in the way and the
// nearest one that would do.
PlanSearchResult search_plans(const Scenario& scenario, const PlanSearchOptions& options);

// Returns what a search changed in a plan as options: "--tp 1 --pp 8 --ep 64 --recompute full".
std::string plan_options(const Scenario& scenario);

}  // namespace moesim::models
