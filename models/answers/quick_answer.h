// The answer of a search to one candidate: time and memory of a step without draws, doubt and breakdown.
#pragma once

#include <memory>

#include "models/answers/priced_draws.h"
#include "models/step/forecast.h"
#include "models/step/step_forecast.h"
#include "models/workload/scenario.h"

namespace moesim::models {

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

}  // namespace moesim::models
