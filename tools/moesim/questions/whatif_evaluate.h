// One scenario, answered: the entry of every verb that asks about a layer or a step.
#pragma once

#include "models/answers/answer.h"

namespace moesim::tools {

using models::add_new;
using models::Answer;
using models::difference_us;
using models::ratio;
using CostCache = models::PriceCache;
using Evaluation = models::Comparison;

struct EvaluationOptions {
  int draws = 48;  // 0: no intervals
  bool breakdown = true;
  // Where given; of all scenarios that name their cluster.
  CostCache* costs = nullptr;
  models::RoutingCache* routings = nullptr;
};

// Opens the scenario's routing file, where it names one, and answers. Throws InputError where no dispatcher
// of the scenario can be forecast; one that is illegal beside others is an answer with its error.
Evaluation evaluate(models::Scenario scenario, const EvaluationOptions& options = {});
// The same with all options of the models.
models::Comparison ask(models::Scenario scenario, const models::AnswerOptions& options);

}  // namespace moesim::tools
