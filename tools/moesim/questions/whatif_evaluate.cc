#include "tools/moesim/questions/whatif_evaluate.h"

#include <utility>

#include "replay/recording/routing_from_dispatching.h"

namespace moesim::tools {

models::Comparison ask(models::Scenario scenario, const models::AnswerOptions& options) {
  replay::open_routing(scenario.routing);
  return models::answer(std::move(scenario), options);
}

Evaluation evaluate(models::Scenario scenario, const EvaluationOptions& options) {
  models::AnswerOptions o;
  o.draws = options.draws;
  o.breakdown = options.breakdown;
  o.each = true;
  o.prices = scenario.cluster ? options.costs : nullptr;
  o.routings = options.routings;
  return ask(std::move(scenario), o);
}

}  // namespace moesim::tools
