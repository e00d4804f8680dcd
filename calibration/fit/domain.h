// Ranges that the rows of a law cover.
#pragma once

#include "models/hardware/profile.h"

namespace moesim::calibration {

// Extends the range of a quantity of `set` to `value`; adds the range where it is missing.
void widen(models::ParameterSet& set, const char* quantity, double value);

}  // namespace moesim::calibration
