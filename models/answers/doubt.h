// What a forecast may be off by besides the draws of its prices.
#pragma once

#include <string>
#include <string_view>

#include "models/step/forecast.h"

namespace moesim::models {

// What published steps scatter around the forecast besides what the profile knows (natural logarithm):
// frameworks, their versions, and what the model leaves out. Measured by `moesim validate --training`
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
