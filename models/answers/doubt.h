// Adds to a forecast the doubt that the draws of its prices do not hold.
#pragma once

#include <string>
#include <string_view>

#include "models/step/forecast.h"

namespace moesim::models {

// Published steps scatter by this standard deviation (natural logarithm) around forecasts of known prices:
// frameworks and versions differ, and the model leaves things out. Measured by `moesim validate --training`
// (docs/validation.md).
inline constexpr double kStepSigma = 0.15;
// By what a dispatcher's launches may be off (natural logarithm). Judged from one layer that the host bounds,
// which took 2.5 times as long under one dispatcher as under another (marin-community/marin #3666).
inline constexpr double kLaunchSigma = 0.8;
// The name under which a dispatcher's launches are drawn.
std::string launches_of(std::string_view dispatcher);

// Widens the draws by what no profile measured and makes the interval of them. `sigma`: of the whole, 0 of a
// layer. `launches`: share of the time in which the device waits for launches of `dispatcher`, each
// dispatcher's in doubt by itself.
void add_doubt(Forecast& forecast, double sigma, std::string_view dispatcher, double launches);

}  // namespace moesim::models
