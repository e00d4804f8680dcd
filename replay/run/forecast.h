// Forecasts the full iteration of a job from a scaling recording (one microbatch of every rank on one GPU), with
// its interval: draws of its constants, the profile's parameters and the jitter, run through the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/hardware/cluster.h"
#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"
#include "replay/recording/denoise.h"
#include "replay/recording/effects.h"
#include "replay/recording/gradients.h"
#include "replay/run/iteration.h"
#include "replay/run/run_summary.h"

namespace moesim::replay {

// One slot of a stage's schedule. A fused slot forms one call with the next slot.
struct Slot {
  StepKind kind = StepKind::forward;
  int microbatch = 0;
  bool fused_with_next = false;

  friend bool operator==(const Slot&, const Slot&) = default;
};

// Returns the passes of models::pipeline_schedule() (1F1B, not interleaved) of every stage, as Megatron's
// recorders write them: a send and the receive from the same neighbour in the steady state are one call.
// get_batch is on the first and last stage, loss on the last. Gradient reductions and the optimizer are not
// included.
std::vector<std::vector<Slot>> one_forward_one_backward(int stages, int microbatches);

// Limit on microbatches of all ranks together; 4 GB.
inline constexpr std::int64_t kMostRankMicrobatches = std::int64_t{1} << 18;

struct ForecastOptions {
  int microbatches = 0;  // per data-parallel rank; must be positive
  // of the recorded model; nullptr: identified by its sizes
  const models::Architecture* architecture = nullptr;
  std::uint64_t seed = 1;               // of the jitter
  const sim::Fabric* fabric = nullptr;  // transfers share its links (timing `flow`)
  int threads = 1;                      // of several draws; 0: all cores
  sim::Detail detail = sim::Detail::full;
  MatchedCalls* calls = nullptr;  // of forecasts of one job that differ in their times
};

struct ScalingForecast {
  Iteration iteration;
  std::vector<RankSteps> plans;  // plans of the run
  std::vector<std::string> warnings;
};

// Returns the plans of all ranks: the cleaned microbatch repeated in 1F1B order, with the effects of a real
// run added.
std::vector<RankSteps> forecast_plans(const CleanJob& job, const traces::NamedTopology& named,
                                      const Effects& effects, const ForecastOptions& options,
                                      std::vector<std::string>& warnings);

// Throws InputError when the cluster has fewer GPUs than the job has ranks.
ScalingForecast forecast(const CleanJob& job, const traces::NamedTopology& named,
                         const models::Cluster& cluster, const Effects& effects,
                         const ForecastOptions& options);

// Returns the default microbatches per data-parallel rank: a global batch of 64 sequences, as in the public
// recordings, and at least one per rank. Recordings of one microbatch do not contain the number.
int default_microbatches(const Topology& topology, const traces::NamedTopology& named);

// Returns the microbatches per rank of a realistic recording.
int microbatches_of(const RecordedJob& job);

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

// Likewise of those from one expert rank of each stage around those from all: the 38 choices with 300 rows or more of
// the development jobs, two passes each.
inline constexpr double kOneExpertRank = 0.017;

// Returns summaries of `draws` forecasts, each with its own effects, profile and jitter; draw i depends on
// (seed, i) only. `drawn_job` replaces `job` where it is given.
std::vector<RunSummary> draw_forecasts(const CleanJob& job, const traces::NamedTopology& named,
                                       const models::Cluster& cluster, const Effects& effects,
                                       const ForecastOptions& options, int draws,
                                       const JobDraw& drawn_job = {});

// Returns `value` with the 90 % interval of one quantity's draws, run-to-run noise included.
models::Estimate interval(double value, const std::vector<double>& drawn);

}  // namespace moesim::replay
