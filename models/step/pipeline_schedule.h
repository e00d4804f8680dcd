// The order in which each pipeline stage runs its passes. Pure order: no time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/workload/training_plan.h"

namespace moesim::models {

struct PipelineSlot {
  enum class Kind : std::uint8_t {
    kForward,
    kBackward,       // input and weight gradients
    kInputGradient,  // of a split backward: what the stage before waits for
    kWeightGradient,
    kOverlapped,  // a forward and the backward of another microbatch together, communication of one under the
                  // other
  };
  Kind kind = Kind::kForward;
  std::int32_t microbatch = 0;
  std::int32_t chunk = 0;            // global, 0 holds the embedding
  std::int32_t back_microbatch = 0;  // of kOverlapped: its backward half
  std::int32_t back_chunk = 0;
};
std::string_view name_of(PipelineSlot::Kind kind);  // "forward", "backward", "input gradient", ...

struct PipelineShape {
  int stages = 1;
  int virtual_stages = 1;  // chunks per stage; global chunk c stands on stage c mod stages
  int microbatches = 1;
  PipelineKind kind = PipelineKind::k1F1B;
  bool overlapped = false;  // forward and backward of the steady state as kOverlapped slots

  // kDualPipe: microbatches of even number go down the pipeline, of odd number up; each stage holds chunk s
  // and chunk stages-1-s.
  int stage_of(int chunk, int microbatch) const;
  int chunks() const { return stages * virtual_stages; }
};

// Slots of every stage in order. Megatron's 1F1B and interleaved schedules (arXiv 2104.04473; one more
// warm-up microbatch where forward and backward overlap, so that no pair depends on itself), ZB-H1 (arXiv
// 2401.10241: stage s delays s weight gradients), DualPipe as deepseek-ai/DualPipe runs it in eight steps.
// Throws InputError for shapes the schedule does not exist for.
std::vector<std::vector<PipelineSlot>> pipeline_schedule(const PipelineShape& shape);

}  // namespace moesim::models
