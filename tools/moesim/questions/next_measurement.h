// What would settle a comparison that is too close to call.
#pragma once

#include "models/answers/answer.h"

namespace moesim::tools {

// Names the measurement that saves most, where there is one. It takes about as long as the answer did.
void name_measurement(models::Comparison& comparison);

}  // namespace moesim::tools
