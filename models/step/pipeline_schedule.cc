#include "models/step/pipeline_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {

namespace {

using Kind = PipelineSlot::Kind;

struct Unit {
  std::int32_t microbatch, chunk;
};

// Returns a stage's chunks in the order of its forward passes: groups of `stages` microbatches go through one
// chunk after the other.
std::vector<Unit> units(const PipelineShape& s, int stage, bool forward) {
  std::vector<Unit> all;
  for (int start = 0; start < s.microbatches; start += s.stages) {
    const int end = std::min(s.microbatches, start + s.stages);
    for (int v = 0; v < s.virtual_stages; ++v) {
      const int local = forward ? v : s.virtual_stages - 1 - v;
      for (int m = start; m < end; ++m) all.push_back({m, local * s.stages + stage});
    }
  }
  return all;
}

std::vector<PipelineSlot> one_f_one_b(const PipelineShape& s, int stage) {
  const std::vector<Unit> forward = units(s, stage, true), backward = units(s, stage, false);
  const int total = static_cast<int>(forward.size());
  int warm_up = s.virtual_stages > 1 ? (s.stages - stage - 1) * 2 + (s.virtual_stages - 1) * s.stages
                                     : s.stages - stage - 1;
  // With overlap, a microbatch needs a slot for every stage on its way down and on its way back.
  if (s.overlapped) warm_up = s.virtual_stages > 1 ? warm_up + 1 : 2 * (s.stages - stage - 1) + 1;
  warm_up = std::min(warm_up, total);
  // With fewer microbatches than stages a backward may need forwards of the last chunks.
  if (s.virtual_stages > 1 && s.microbatches < s.stages) warm_up = total;
  std::vector<PipelineSlot> slots;
  slots.reserve(static_cast<std::size_t>(2 * total));
  for (int i = 0; i < warm_up; ++i)
    slots.push_back({Kind::kForward, forward[i].microbatch, forward[i].chunk});
  for (int i = 0; i < total; ++i) {
    const int f = i + warm_up;
    if (f >= total) {
      slots.push_back({Kind::kBackward, backward[i].microbatch, backward[i].chunk});
    } else if (s.overlapped) {
      slots.push_back({Kind::kOverlapped, forward[f].microbatch, forward[f].chunk, backward[i].microbatch,
                       backward[i].chunk});
    } else {
      slots.push_back({Kind::kForward, forward[f].microbatch, forward[f].chunk});
      slots.push_back({Kind::kBackward, backward[i].microbatch, backward[i].chunk});
    }
  }
  return slots;
}

std::vector<PipelineSlot> zero_bubble(const PipelineShape& s, int stage) {
  const int warm_up = std::min(s.stages - stage - 1, s.microbatches);
  std::vector<PipelineSlot> slots;
  slots.reserve(static_cast<std::size_t>(3 * s.microbatches));
  int weights = 0;
  for (int i = 0; i < warm_up; ++i) slots.push_back({Kind::kForward, i, stage});
  for (int i = 0; i < s.microbatches; ++i) {
    if (i + warm_up < s.microbatches) slots.push_back({Kind::kForward, i + warm_up, stage});
    slots.push_back({Kind::kInputGradient, i, stage});
    if (i >= stage) slots.push_back({Kind::kWeightGradient, weights++, stage});
  }
  while (weights < s.microbatches) slots.push_back({Kind::kWeightGradient, weights++, stage});
  return slots;
}

std::vector<PipelineSlot> dual_pipe(const PipelineShape& s, int stage) {
  const int ranks = s.stages, half = ranks / 2, each = s.microbatches / 2;
  const int half_rank = std::min(stage, ranks - 1 - stage);
  const bool upper = stage >= half;
  std::vector<PipelineSlot> slots;
  std::int32_t forwards[2] = {0, 0}, backwards[2] = {0, 0};
  std::vector<Unit> deferred;
  std::size_t weights = 0;
  // Phase 0 is the direction in which this rank is nearer to the start.
  const auto unit = [&](int phase, std::int32_t count) {
    const bool down = (phase == 0) != upper;
    return Unit{2 * count + (down ? 0 : 1), down ? stage : ranks - 1 - stage};
  };
  const auto forward = [&](int phase) {
    const Unit u = unit(phase, forwards[phase]++);
    slots.push_back({Kind::kForward, u.microbatch, u.chunk});
  };
  const auto backward = [&](int phase, bool split) {
    const Unit u = unit(phase, backwards[phase]++);
    slots.push_back({split ? Kind::kInputGradient : Kind::kBackward, u.microbatch, u.chunk});
    if (split) deferred.push_back(u);
  };
  const auto both = [&](int forward_phase, int backward_phase) {
    const Unit f = unit(forward_phase, forwards[forward_phase]++);
    const Unit b = unit(backward_phase, backwards[backward_phase]++);
    slots.push_back({Kind::kOverlapped, f.microbatch, f.chunk, b.microbatch, b.chunk});
  };
  const auto weight = [&] {
    if (weights == deferred.size()) return;
    const Unit u = deferred[weights++];
    slots.push_back({Kind::kWeightGradient, u.microbatch, u.chunk});
  };
  for (int i = 0; i < (half - half_rank - 1) * 2; ++i) forward(0);
  for (int i = 0; i < half_rank + 1; ++i) forward(0), forward(1);
  for (int i = 0; i < half - half_rank - 1; ++i) backward(1, true), weight(), forward(1);
  for (int i = 0; i < each - ranks + half_rank + 1; ++i) both(0, 1), both(1, 0);
  for (int i = 0; i < half - half_rank - 1; ++i) backward(1, false), both(1, 0);
  bool split = false;
  for (int i = 0; i < half_rank + 1; ++i) {
    if (i == (half_rank + 1) / 2 && half_rank % 2 == 1) split = true;
    backward(1, split);
    if (i == (half_rank + 1) / 2 && half_rank % 2 == 0) split = true;
    backward(0, split);
  }
  for (int i = 0; i < half - half_rank - 1; ++i) weight(), backward(0, true);
  while (weights < deferred.size()) weight();
  return slots;
}

}  // namespace

std::string_view name_of(PipelineSlot::Kind kind) {
  static constexpr std::string_view kNames[] = {"forward", "backward", "input gradient", "weight gradient",
                                                "forward and backward"};
  return kNames[static_cast<std::size_t>(kind)];
}

int PipelineShape::stage_of(int chunk, int microbatch) const {
  if (kind == PipelineKind::kDualPipe) return microbatch % 2 == 0 ? chunk : stages - 1 - chunk;
  return chunk % stages;
}

std::vector<std::vector<PipelineSlot>> pipeline_schedule(const PipelineShape& s) {
  check(s.stages >= 1 && s.virtual_stages >= 1 && s.microbatches >= 1,
        "a pipeline has stages and microbatches");
  if (s.kind != PipelineKind::k1F1B && s.virtual_stages > 1)
    throw InputError(fmt::format("schedule {}: found vpp {}, expected 1", name_of(s.kind), s.virtual_stages));
  if (s.kind == PipelineKind::kDualPipe) {
    if (s.stages % 2 != 0)
      throw InputError(
          fmt::format("schedule dualpipe: found pp {}, expected an even number of stages", s.stages));
    if (s.microbatches % 2 != 0 || s.microbatches < 2 * s.stages)
      throw InputError(fmt::format(
          "schedule dualpipe: found {} microbatches, expected an even number of at least 2 x pp = {}",
          s.microbatches, 2 * s.stages));
  }
  std::vector<std::vector<PipelineSlot>> schedule;
  for (int stage = 0; stage < s.stages; ++stage) switch (s.kind) {
      case PipelineKind::k1F1B:
        schedule.push_back(one_f_one_b(s, stage));
        break;
      case PipelineKind::kZeroBubble:
        schedule.push_back(zero_bubble(s, stage));
        break;
      case PipelineKind::kDualPipe:
        schedule.push_back(dual_pipe(s, stage));
        break;
    }
  return schedule;
}

}  // namespace moesim::models
