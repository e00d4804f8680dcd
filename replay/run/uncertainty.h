// The interval of a forecast: draws of its constants, the profile's parameters and the jitter, run through
// the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"
#include "replay/run/forecast.h"
#include "replay/run/run_summary.h"

namespace moesim::replay {

// Relative standard deviation between runs of the same job.
inline constexpr double kRunToRun = 0.008;

// The forecast job under a drawn profile, where the job itself depends on the models, and its further
// relative standard deviation.
struct JobDraw {
  std::function<CleanJob(const models::Profile&, std::uint64_t seed)> job;
  double sigma = 0;
};

// Standard deviation of iterations forecast from recordings of other sizes: twenty pairs of the development
// jobs with other expert-parallel sizes and expert counts, around those forecast from their own, and fifteen
// at four times the sequence (docs/replay.md).
inline constexpr double kOtherSizes = 0.016;

// Returns summaries of `draws` forecasts, each with its own effects, profile and jitter; draw i depends on
// (seed, i) only. `drawn_job` replaces `job` where it is given.
std::vector<RunSummary> draw_forecasts(const CleanJob& job, const traces::NamedTopology& named,
                                       const models::Cluster& cluster, const Effects& effects,
                                       const ForecastOptions& options, int draws,
                                       const JobDraw& drawn_job = {});

// Returns `value` with the 90 % interval of one quantity's draws, run-to-run noise included.
models::Estimate interval(double value, const std::vector<double>& drawn);

}  // namespace moesim::replay
