// The interval of a forecast: its constants, the profile's parameters and the jitter drawn from their
// distributions and carried through the simulator.
#pragma once

#include <vector>

#include "models/estimate.h"
#include "replay/forecast.h"
#include "replay/measured.h"

namespace moesim::replay {

// One run of the same job differs from the next by this much (standard deviation, docs/formats.md: 0.8 %).
inline constexpr double kRunToRun = 0.008;

// Summaries of `draws` forecasts, each with its own effects, profile and jitter; draw i depends on (seed, i)
// only.
std::vector<RunSummary> draw_forecasts(const CleanJob& job, const traces::NamedTopology& named,
                                       const models::Cluster& cluster, const Effects& effects,
                                       const ForecastOptions& options, int draws);

// `value` with the 90 % interval of the drawn values of one quantity, run-to-run noise included.
models::Estimate interval(double value, const std::vector<double>& drawn);

}  // namespace moesim::replay
