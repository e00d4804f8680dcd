// Durations of a run, operation by operation: one rule for realistic recordings and simulated iterations.
#pragma once

#include <array>
#include <span>

#include "replay/recording/steps.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

// Mean duration of a kind of step over all ranks and microbatches, in microseconds, waiting included.
struct StepMean {
  std::size_t count = 0;
  double mean_us = 0;
};

struct RunSummary {
  double iteration_us = 0;
  std::array<StepMean, kStepKinds> steps{};
  // Point-to-point time per rank and iteration, a fused pair counted once.
  double p2p_us = 0;

  const StepMean& of(StepKind kind) const { return steps[static_cast<std::size_t>(kind)]; }
};

// Clocks are comparable inside a node only, so the iteration is the longest span of a node from its first
// start to its last end: all nodes leave the barrier before the iteration together (docs/replay.md).
RunSummary summarize(const RecordedJob& measured, int gpus_per_node);
RunSummary summarize(const Iteration& simulated);

}  // namespace moesim::replay
