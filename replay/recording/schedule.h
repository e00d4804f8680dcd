// The order of a pipeline stage's steps, with its sends and receives.
#pragma once

#include <vector>

#include "replay/recording/steps.h"

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

}  // namespace moesim::replay
