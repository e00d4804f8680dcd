#include "replay/recording/schedule.h"

#include "models/step/pipeline_schedule.h"

namespace moesim::replay {

namespace {

std::vector<Slot> with_transfers(const std::vector<models::PipelineSlot>& passes, int stage, int stages) {
  const bool first = stage == 0, last = stage == stages - 1;
  const bool steady = static_cast<int>(passes.size()) / 2 >= stages - stage;
  std::vector<Slot> slots;
  const models::PipelineSlot* before = nullptr;
  for (const models::PipelineSlot& pass : passes) {
    const bool forward = pass.kind == models::PipelineSlot::Kind::kForward;
    if (forward ? !first : !last) {
      if (steady && before != nullptr && before->kind != pass.kind) slots.back().fused_with_next = true;
      slots.push_back({forward ? StepKind::recv_forward : StepKind::recv_backward, pass.microbatch});
    }
    if (forward && (first || last)) slots.push_back({StepKind::get_batch, pass.microbatch});
    slots.push_back({forward ? StepKind::forward : StepKind::backward, pass.microbatch});
    if (forward && last) slots.push_back({StepKind::loss, pass.microbatch});
    if (forward ? !last : !first)
      slots.push_back({forward ? StepKind::send_forward : StepKind::send_backward, pass.microbatch});
    before = &pass;
  }
  return slots;
}

}  // namespace

std::vector<std::vector<Slot>> one_forward_one_backward(int stages, int microbatches) {
  std::vector<std::vector<Slot>> all;
  for (const auto& passes : models::pipeline_schedule({.stages = stages, .microbatches = microbatches}))
    all.push_back(with_transfers(passes, static_cast<int>(all.size()), stages));
  return all;
}

}  // namespace moesim::replay
