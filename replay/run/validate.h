// Compares a forecast with a measured recording, in total and operation by operation.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "replay/run/run_summary.h"

namespace moesim::replay {

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
