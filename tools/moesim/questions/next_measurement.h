// The measurement that would settle a choice that is open.
#pragma once

#include "models/answers/answer.h"

namespace moesim::tools {

// Names the measurement that saves most, where there is one. It takes about as long as the answer did, which
// was asked with `options`; where so many draws tell nothing of any measurement, as long as an answer with
// kPlanDraws.
void name_measurement(models::Comparison& comparison, models::AnswerOptions options);

}  // namespace moesim::tools
