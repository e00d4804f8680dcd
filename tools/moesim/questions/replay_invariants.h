// Checks of every forecast of a recording before it is shown, beside those of models/answers/invariants.h.
#pragma once

#include <string>

#include "replay/run/forecast_recording.h"
#include "replay/run/validate.h"

namespace moesim::tools {

// One clause that names what cannot be; empty: all is well. Beyond the checks of any forecast, the parts of
// every rank and the causes add up to the iteration; means, waits and loads are finite and not negative.
std::string impossible(const replay::RecordingForecast& forecast);

// Checks a forecast beside its measurement: finite, inside of its own interval.
std::string impossible(const replay::Validation& validation);

}  // namespace moesim::tools
