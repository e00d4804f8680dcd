// Durations of a run, operation by operation: one rule for realistic recordings and simulated iterations, and the
// comparison of both.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

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

struct Comparison {
  std::string_view name;
  double forecast_us = 0;
  double measured_us = 0;
  double low_us = 0;  // 90 % interval of the forecast; of run-to-run noise alone without draws
  double high_us = 0;

  bool covered() const { return measured_us >= low_us && measured_us <= high_us; }
  double error() const { return measured_us > 0 ? forecast_us / measured_us - 1.0 : 0.0; }
};

struct Validation {
  Comparison iteration;
  // Means over all ranks and microbatches, waiting included; p2p per rank and iteration. Only operations on
  // both sides.
  std::vector<Comparison> components;

  double mean_abs_component_error() const;
};

// `drawn`: further forecasts of the same job, for the intervals; may be empty.
Validation validate(const RunSummary& forecast, const RunSummary& measured,
                    std::span<const RunSummary> drawn = {});

}  // namespace moesim::replay
