// Memory of a rank: by cause, and over the time of one layer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/parallel.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

struct RankMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, transient = 0, persistent = 0;
  double total() const { return parameters + gradients + optimizer + activations + transient + persistent; }
};

// Memory of a rank after each allocation and release of one MoE layer's program, with the rest of its plan
// allocated: at the last microbatch in flight and the last MoE layer of the stage.
struct MemoryPoint {
  bool forward = true;
  std::int32_t op = 0;    // index into the pass
  std::string_view what;  // the tensor that was allocated or freed
  double bytes = 0;       // held from then on
};
std::vector<MemoryPoint> memory_of_layer(const Program& program, int rank, const RankMemory& whole,
                                         bool train);

// Parameters on one rank of a pipeline stage.
struct StageParameters {
  double dense = 0, experts = 0;
  double router = 0;                             // part of `dense`
  double dense_tensors = 0, expert_tensors = 0;  // number of weight tensors
};
}  // namespace moesim::models
