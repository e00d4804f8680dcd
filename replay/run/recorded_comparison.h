// The recorded dispatcher and another one on the same recording, compared as answer() compares dispatchers.
#pragma once

#include <optional>

#include "models/answers/answer.h"
#include "replay/run/forecast_recording.h"

namespace moesim::replay {

// Returns the comparison with its decision, the recorded dispatcher first: its answers have times, breakdown
// and memory, but no program. nullopt where no other dispatcher was asked for.
std::optional<models::Comparison> compared(const RecordingForecast& forecast);

}  // namespace moesim::replay
