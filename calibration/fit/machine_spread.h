// How much machines of one kind differ, as a law of a built-in profile has to be doubted on a machine that
// measured none of its rows.
#pragma once

#include <vector>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// Covariance of the logarithms of a law's parameters on another machine of the same kind: what the law's own
// rows leave open, and how far machines differ (docs/calibration.md, "One log makes it mine"). A law taken
// over from other machines differs more, by its residual. Row-major, n x n.
std::vector<double> machine_covariance(const models::ParameterSet& law);

}  // namespace moesim::calibration
