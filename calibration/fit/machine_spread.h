// Spread between machines of one kind: the uncertainty of a built-in profile's law on a machine without own
// rows.
#pragma once

#include <vector>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// Returns the covariance of the logarithms of a law's parameters on another machine of the same kind: the
// fit's own uncertainty plus the spread between machines (docs/calibration.md, "One log makes it mine"). A
// law derived from other machines varies more, by its residual. Row-major, n x n.
std::vector<double> machine_covariance(const models::ParameterSet& law);

}  // namespace moesim::calibration
