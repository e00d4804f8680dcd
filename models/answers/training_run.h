// A whole training: which machine, which plan, how long, what it costs, how sure that is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "models/hardware/ownership.h"
#include "models/hardware/rental.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// A kind of machine and how many GPUs of it are looked at; of one with its number of nodes, none.
struct RunMachine {
  std::shared_ptr<const Cluster> cluster;
  std::vector<std::int64_t> gpus;
};

struct RunQuestion {
  enum class By : std::uint8_t { kCost, kTime };

  Scenario scenario;  // of a step: model, sequence, batch, what is fixed of the plan; no cluster
  double tokens = 0;
  std::vector<RunMachine> machines;
  PriceTable prices;         // of the rent; its currency is that of the answer
  Ownership ownership;       // of machines that are bought instead
  double deadline_days = 0;  // 0: none
  double budget = 0;         // 0: none
  By by = By::kCost;         // what ranks plans that meet both
  bool lower_precision =
      true;  // also what the GPU has below bf16, ranked apart, where nobody said a precision
  bool upgrades = true;
  int draws = 16;
  const Anchor* anchor = nullptr;  // of a run of this kind
  int threads = 0;                 // 0: all cores
  std::int64_t most = 40'000;      // forecasts of a search at most
  // Told forecasts that are done, and how many there are at most; now and then, from the thread that called.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

// A plan on a machine, judged as a training.
struct RunPlan {
  std::shared_ptr<const Scenario> scenario;  // resolved, one dispatcher
  Answer answer;
  std::int64_t gpus = 0;       // of the machine's nodes: paid
  std::int64_t idle_gpus = 0;  // of them without work
  Estimate days, cost;         // with lost work, checkpoints and restarts
  std::vector<double> days_draws;
  HourCost hour;   // of its GPUs
  double mwh = 0;  // that all nodes take at most, without cooling; 0: nobody says
  double deadline_probability = 1, budget_probability = 1;
  bool meets = true;   // deadline and budget, each with a probability of Decision::kSure
  bool other = false;  // of a lower precision that nobody asked for
  bool on_frontier = false;
  int tie_group = 0;
};

// A change of the best plan's machine, with the best plan on it.
struct Upgrade {
  std::string change;   // "network port 50 -> 100 GB/s"
  std::string cluster;  // that it makes
  Estimate days, saved_days;
  double worth = 0;  // what the days that are saved would have cost at the present rent
  // Of a GPU-hour, at which the training costs as much as without the change; 0: nothing is saved.
  double most_gpu_hour = 0;
  double listed_gpu_hour = 0;  // its rent, where it is known; else 0
};

struct RunAnswer {
  // A machine on which nothing runs, or a dispatcher on one, and why.
  struct LeftOut {
    std::string what, why;
    bool machine = true;
  };

  std::vector<RunPlan> plans;  // best first; those of other precisions last
  std::vector<Upgrade> upgrades;
  std::vector<LeftOut> left_out;
  std::int64_t candidates = 0, tried = 0;  // plans
  std::int64_t searches = 0;               // of them
  bool exhaustive = true;
  // The largest share of a plan's time by which another plan of its search may be faster.
  double gap = 0;
  std::string method, space;  // of one search, for people
};

// Failures and checkpoints that are taken where nobody says any: 419 unexpected interruptions in 54 days on
// 16,384 GPUs (Llama 3, arXiv 2407.21783, 3.3.4). 30 s for a checkpoint and 5 minutes for a restart are
// assumptions, with which such a training works 90 % of the time, as that one reports.
Faults usual_failures();
// Takes them where the scenario says none.
void take_usual_failures(Scenario& scenario);

// Numbers of GPUs, powers of two of nodes, with which a training takes between 7 and 120 days at a third of
// the peak: what is looked at where nobody says how many. A deadline or a budget asks for more of them.
// `deadline_days`: 0 where there is none; `limited`: by a budget, with which the shortest training is asked
// for.
std::vector<std::int64_t> usual_gpus(const Architecture& model, const Cluster& cluster, double tokens,
                                     double deadline_days = 0, bool limited = false);

// The plans of an answer that meet what was asked for, in the precision that was asked for: the cheapest, the
// one on the fewest GPUs, the one done first. nullptr where none does.
struct RunChoices {
  const RunPlan *cheapest = nullptr, *fewest_gpus = nullptr, *shortest = nullptr;
};
RunChoices choices_of(const RunAnswer& answer);

// A step's answer as a training. Throws InputError for a machine without a price.
RunPlan judge_run(const RunQuestion& question, std::shared_ptr<const Scenario> scenario, Answer answer);

// Throws InputError where nothing fits any machine, and for a machine without a price.
RunAnswer plan_run(const RunQuestion& question);

}  // namespace moesim::models
