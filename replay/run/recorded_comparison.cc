#include "replay/run/recorded_comparison.h"

#include <memory>

namespace moesim::replay {

namespace {

models::Answer answer_of(const models::Forecast& forecast, const std::string& dispatcher,
                         const std::optional<RecordedMemory>& held) {
  models::Answer answer(forecast);
  answer.dispatcher = dispatcher;
  if (held) answer.memory = held->step;
  return answer;
}

}  // namespace

std::optional<models::Comparison> compared(const RecordingForecast& f) {
  if (!f.substitution || !f.as_recorded) return std::nullopt;
  models::Comparison c;
  auto scenario = std::make_shared<models::Scenario>();
  scenario->scope = models::Scenario::Scope::kStep;
  c.scenario = std::move(scenario);
  c.answers = {answer_of(*f.as_recorded, f.substitution->recorded, f.held_as_recorded),
               answer_of(f, f.substitution->asked, f.held)};
  models::rank(c.answers, false);
  c.decision = models::decide(c.answers);
  return c;
}

}  // namespace moesim::replay
