// The measurement that would settle an open choice.
#pragma once

#include "models/answers/answer.h"

namespace moesim::tools {

// Sets the measurement that saves most, if any. Takes about as long as the answer, which was computed with
// `options`; where its draws are too few for any measurement, as long as an answer with kPlanDraws.
void name_measurement(models::Comparison& comparison, models::AnswerOptions options);

}  // namespace moesim::tools
