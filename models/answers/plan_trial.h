// One plan tried, as every search tries it: whether it is legal, whether it fits, and how long its step takes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "models/answers/priced_draws.h"
#include "models/step/forecast.h"
#include "models/step/step_forecast.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// The answer of a search to one candidate: time and memory of a step without draws, doubt and breakdown.
//
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
  double tokens() const { return forecaster_.tokens(); }
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

// Returns the rule of a framework that a resolved plan with one dispatcher breaks; "": it may run. Not set:
// there is none.
using PlanRules = std::function<std::string(const Scenario&)>;

// The conditions under which a search shows a plan.
struct PlanLimits {
  PlanRules refused;
  bool under_memory = true;  // fits with a probability of at least Decision::kSure
  bool measured = false;     // somebody measured its dispatch kernels on the machine
};

struct PlanTrial {
  enum class Fate : std::uint8_t { kIllegal, kTooLarge, kForecast };

  Fate fate = Fate::kIllegal;
  double per_token = std::numeric_limits<double>::infinity();  // seconds of the step, for kForecast
  double tokens = 0;                                           // of the step
  std::string rule;                                            // for kIllegal
  std::string unmeasured;  // for kIllegal: the dispatcher, where that is the rule
  bool counted = false;    // by its search
};

// Tries a scenario's plan with its first dispatcher, and resolves it first.
PlanTrial try_plan(Scenario scenario, const PlanLimits& limits, PriceCache& prices);
// Returns the same without a look at rules of frameworks and memory: how long a step of it would take.
PlanTrial time_plan(Scenario scenario, bool measured, PriceCache& prices);
// Whether a plan surely fits.
bool surely_fits(const StepMemory& memory);
// Resolves a plan and leaves its first dispatcher. Throws InputError where it contradicts itself.
Scenario resolved_plan(Scenario scenario);

}  // namespace moesim::models
