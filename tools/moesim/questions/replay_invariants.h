// Invariants of every forecast of a recording, checked before it is shown, in addition to
// models/answers/invariants.h.
#pragma once

#include <string>

#include "replay/run/forecast_recording.h"
#include "replay/run/validate.h"

namespace moesim::tools {

// Returns the first violated invariant in one clause; empty: none. Beyond the checks of any forecast, the
// parts of every rank and the causes add up to the iteration; means, waits and loads are finite and not
// negative.
std::string impossible(const replay::RecordingForecast& forecast);

// Checks a forecast against its measurement: finite, inside of its own interval.
std::string impossible(const replay::Validation& validation);

}  // namespace moesim::tools
