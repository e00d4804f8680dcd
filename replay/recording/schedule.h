// The order in which a pipeline stage does its work.
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

// Megatron's non-interleaved 1F1B (PipeDream-flush; Narayanan et al. 2021): warm-up of stages - stage - 1
// forwards, steady one-forward-one-backward with fused send-and-receive calls, cool-down. get_batch stands on
// the first and last stage, loss on the last. Gradient reductions and the optimizer are not part of it.
std::vector<Slot> one_forward_one_backward(int stage, int stages, int microbatches);

}  // namespace moesim::replay
