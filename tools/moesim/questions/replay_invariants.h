// What holds of every forecast of a recording, asked before anybody sees it (models/answers/invariants.h asks
// it of scenarios).
#pragma once

#include <string>

#include "replay/run/forecast_recording.h"
#include "replay/run/validate.h"

namespace moesim::tools {

// What cannot be, in one clause; empty: all is well. The iteration and its interval are finite and hold each
// other, what every rank does and what the causes account for add up to it, means, waits and loads are finite
// and not negative, links carry at most what they can.
std::string impossible(const replay::RecordingForecast& forecast);

// The same of a forecast beside its measurement: finite, inside of its own interval.
std::string impossible(const replay::Validation& validation);

}  // namespace moesim::tools
