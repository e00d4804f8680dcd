// The ranges that the rows of a law cover.
#pragma once

#include "models/hardware/profile.h"

namespace moesim::calibration {

// Makes the range of a quantity of `set` hold `value`; adds the range where there is none.
void widen(models::ParameterSet& set, const char* quantity, double value);

}  // namespace moesim::calibration
