#include "replay/recording/schedule.h"

#include <algorithm>

namespace moesim::replay {

std::vector<Slot> one_forward_one_backward(int stage, int stages, int microbatches) {
  std::vector<Slot> slots;
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  const int warmup = std::min(stages - stage - 1, microbatches);
  const int steady = microbatches - warmup;
  const auto forward = [&](int microbatch) {
    if (first || last) slots.push_back({StepKind::get_batch, microbatch});
    slots.push_back({StepKind::forward, microbatch});
    if (last) slots.push_back({StepKind::loss, microbatch});
  };
  const auto receive_forward = [&](int microbatch) {
    if (!first) slots.push_back({StepKind::recv_forward, microbatch});
  };
  const auto receive_backward = [&](int microbatch) {
    if (!last) slots.push_back({StepKind::recv_backward, microbatch});
  };
  const auto send_backward = [&](int microbatch) {
    if (!first) slots.push_back({StepKind::send_backward, microbatch});
  };

  for (int i = 0; i < warmup; ++i) {
    receive_forward(i);
    forward(i);
    if (!last) slots.push_back({StepKind::send_forward, i});
  }
  if (steady > 0) receive_forward(warmup);
  for (int i = 0; i < steady; ++i) {
    forward(warmup + i);
    if (!last) {
      slots.push_back({StepKind::send_forward, warmup + i, true});
      receive_backward(i);
    }
    slots.push_back({StepKind::backward, i});
    if (i + 1 < steady && !first) {
      slots.push_back({StepKind::send_backward, i, true});
      receive_forward(warmup + i + 1);
    } else {
      send_backward(i);
    }
  }
  for (int i = steady; i < microbatches; ++i) {
    receive_backward(i);
    slots.push_back({StepKind::backward, i});
    send_backward(i);
  }
  return slots;
}

}  // namespace moesim::replay
