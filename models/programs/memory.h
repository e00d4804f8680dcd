// What a rank holds: by cause, and over the time of one layer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/parallel.h"
#include "models/workload/sharding.h"

namespace moesim::models {

struct RankMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, transient = 0, persistent = 0;
  double total() const { return parameters + gradients + optimizer + activations + transient + persistent; }
};

// What a rank holds after each allocation and release of one MoE layer's program, when all else of its plan
// is there: the last microbatch in flight, the last MoE layer of the stage.
struct MemoryPoint {
  bool forward = true;
  std::int32_t op = 0;    // index into the pass
  std::string_view what;  // that was allocated or freed
  double bytes = 0;       // held from then on
};
std::vector<MemoryPoint> memory_of_layer(const Program& program, int rank, const RankMemory& whole,
                                         bool train);

// Parameters on one rank of a pipeline stage.
struct StageParameters {
  double dense = 0, experts = 0;
};
}  // namespace moesim::models
