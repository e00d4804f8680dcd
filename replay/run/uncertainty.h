// The interval of a forecast: its constants, the profile's parameters and the jitter drawn from their
// distributions and carried through the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"
#include "replay/run/forecast.h"
#include "replay/run/run_summary.h"

namespace moesim::replay {

// One run of the same job differs from the next by this much (standard deviation).
inline constexpr double kRunToRun = 0.008;

// The job that is forecast under a drawn profile, where the job itself rests on the models, and the share by
// which what it takes is uncertain beyond that (standard deviation).
struct JobDraw {
  std::function<CleanJob(const models::Profile&, std::uint64_t seed)> job;
  double sigma = 0;
};

// Iterations told from recordings of other sizes scatter by this much: twenty pairs of the development jobs
// with other expert-parallel sizes and expert counts, around those told from their own, and fifteen at four
// times the sequence (docs/replay.md).
inline constexpr double kOtherSizes = 0.016;

// Summaries of `draws` forecasts, each with its own effects, profile and jitter; draw i depends on (seed, i)
// only. `drawn_job` replaces `job` where it is given.
std::vector<RunSummary> draw_forecasts(const CleanJob& job, const traces::NamedTopology& named,
                                       const models::Cluster& cluster, const Effects& effects,
                                       const ForecastOptions& options, int draws,
                                       const JobDraw& drawn_job = {});

// `value` with the 90 % interval of the drawn values of one quantity, run-to-run noise included.
models::Estimate interval(double value, const std::vector<double>& drawn);

}  // namespace moesim::replay
