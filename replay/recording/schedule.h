// The order in which a pipeline stage does its work, with what it sends and receives.
#pragma once

#include <vector>

#include "replay/recording/steps.h"

namespace moesim::replay {

// One slot of a stage's schedule. A fused slot is one call together with the slot after it.
struct Slot {
  StepKind kind = StepKind::forward;
  int microbatch = 0;
  bool fused_with_next = false;

  friend bool operator==(const Slot&, const Slot&) = default;
};

// The passes of models::pipeline_schedule() (1F1B, not interleaved) of every stage, as Megatron's recorders
// write them: a send and the receive from the same neighbour in the steady state are one call. get_batch
// stands on the first and last stage, loss on the last. Gradient reductions and the optimizer are not part of
// it.
std::vector<std::vector<Slot>> one_forward_one_backward(int stages, int microbatches);

}  // namespace moesim::replay
