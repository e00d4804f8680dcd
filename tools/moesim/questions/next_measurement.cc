#include "tools/moesim/questions/next_measurement.h"

#include <string>
#include <utility>

#include "calibration/fit/next_rows.h"
#include "tools/moesim/questions/ask.h"

namespace moesim::tools {

void name_measurement(models::Comparison& comparison, models::AnswerOptions options) {
  if (comparison.anchor) return;  // its draws are no longer those of the profile
  std::string next = calibration::first_measurement(comparison);
  const bool open = comparison.decision.verdict == models::Decision::Verdict::kOpen;
  if (next.empty() && open && 0 < options.draws && options.draws < calibration::kPlanDraws) {
    options.draws = calibration::kPlanDraws;
    options.trace = options.suggest = false;
    models::Comparison more = ask(*comparison.scenario, options);
    // The question remains that of the answer shown.
    more.decision = comparison.decision;
    next = calibration::first_measurement(more);
  }
  comparison.decision.settle = std::move(next);
}

}  // namespace moesim::tools
