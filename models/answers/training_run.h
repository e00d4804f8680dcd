// A whole training: machine, plan, duration, cost and their uncertainty.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/answer.h"
#include "models/answers/doubt.h"
#include "models/answers/energy.h"
#include "models/answers/plan_search.h"
#include "models/hardware/cluster.h"
#include "models/hardware/ownership.h"
#include "models/hardware/rental.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// A kind of machine and the numbers of its GPUs to try; empty for a cluster with a given number of nodes.
struct RunMachine {
  std::shared_ptr<const Cluster> cluster;
  std::vector<std::int64_t> gpus;
};

struct RunQuestion {
  enum class By : std::uint8_t { kCost, kTime };

  Scenario scenario;  // a step: model, sequence, batch and fixed settings of the plan, without a cluster
  double tokens = 0;
  std::vector<RunMachine> machines;
  PriceTable prices;            // of the rent; its currency is that of the answer
  Ownership ownership;          // of machines that are bought instead
  double deadline_days = 0;     // 0: none
  double budget = 0;            // 0: none
  double power_watts = 0;       // of all nodes at their peak, without cooling; 0: no limit
  By by = By::kCost;            // criterion that ranks plans meeting both limits
  bool lower_precision = true;  // also tries types below bf16, ranked apart, where the user gave no precision
  bool upgrades = true;
  int draws = 16;
  const Anchor* anchor = nullptr;      // anchor of a run of this kind
  int threads = 0;                     // 0: all cores
  std::int64_t most = kMostForecasts;  // budget of forecasts per search
  PlanRules refused;
  // Gives a scenario the settings that a recipe has on its machine.
  std::function<void(Scenario&, const std::string& recipe)> take_recipe;
  PlanSpread spread;  // of searched plans that nobody ran; none: a plan that somebody runs
  // Called from time to time on the calling thread with the forecasts done and their maximum.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

// A plan on a machine with the duration and the cost of its training.
struct PricedTraining {
  std::shared_ptr<const Scenario> scenario;  // resolved, one dispatcher
  Answer answer;
  std::int64_t gpus = 0;       // GPUs of the machine's nodes, all paid
  std::int64_t idle_gpus = 0;  // of these, GPUs without work
  Estimate days, cost;         // with lost work, checkpoints and restarts
  std::vector<double> days_draws;
  HourCost hour;                 // of its GPUs
  std::optional<Energy> energy;  // of its step; none: the GPU's power limit is not known
  double deadline_probability = 1, budget_probability = 1;
  // Meets deadline and budget, each with a probability of at least Decision::kSure, and the limit on power.
  bool meets = true;
  bool other = false;  // has a lower precision than the user asked for
  bool on_frontier = false;
  int tie_group = 0;

  // MWh of the training; 0: unknown.
  double mwh() const;
};

// A change of the best plan's machine or settings, judged by the best plan of the changed ones.
struct Upgrade {
  std::string change;   // "network port 50 -> 100 GB/s"
  std::string cluster;  // name of the changed cluster
  Estimate days, saved_days;
  double worth = 0;  // rent of the saved days at the present price
  // Price of a GPU-hour at which the training costs as much as without the change; 0: nothing is saved.
  double most_gpu_hour = 0;
  double listed_gpu_hour = 0;  // rent of the changed machine per GPU-hour; 0: unknown
};

struct RunAnswer {
  // A machine that runs nothing, or a dispatcher left out on a machine, with the reason.
  struct LeftOut {
    std::string what, why;
    bool machine = true;
  };

  std::vector<PricedTraining> plans;  // best first; plans of other precisions last
  std::vector<Upgrade> upgrades;
  std::vector<LeftOut> left_out;
  std::int64_t candidates = 0, tried = 0;  // plans
  std::int64_t searches = 0;               // plan searches
  bool exhaustive = true;
  // The largest share of a plan's time by which another plan of its search may be faster.
  double gap = 0;
  std::string method, space;  // of one search, as text
};

// Returns the default failures and checkpoints: 419 unexpected interruptions in 54 days on 16,384 GPUs (Llama
// 3, arXiv 2407.21783, 3.3.4). 30 s per checkpoint and 5 minutes per restart are assumptions; with them such
// a training works 90 % of the time, as the report says.
Faults usual_failures();
// Sets the default failures where the scenario has none.
void take_usual_failures(Scenario& scenario);

// Returns numbers of GPUs (powers of two of nodes) with which a training takes 7 to 120 days at a third of
// the peak: the default range of a search. A deadline or a budget extends it. `deadline_days`: 0 without a
// deadline; `limited`: a budget is given and the shortest training is searched.
std::vector<std::int64_t> usual_gpus(const Architecture& model, const Cluster& cluster, double tokens,
                                     double deadline_days = 0, bool limited = false);

// The plans that meet the limits in the requested precision: cheapest, fewest GPUs, shortest; nullptr where
// there is none.
struct RunChoices {
  const PricedTraining *cheapest = nullptr, *fewest_gpus = nullptr, *shortest = nullptr;
};
RunChoices choices_of(const RunAnswer& answer);

// Turns the answer of a step into a training. Throws InputError for a machine without a price.
PricedTraining judge_run(const RunQuestion& question, std::shared_ptr<const Scenario> scenario,
                         Answer answer);

// Searches and ranks plans. Throws InputError where nothing fits any machine and for a machine without a
// price.
RunAnswer plan_run(const RunQuestion& question);

}  // namespace moesim::models
