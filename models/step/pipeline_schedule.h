// The order in which each pipeline stage runs its passes, independent of times.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/workload/training_settings.h"

namespace moesim::models {

struct PipelineSlot {
  enum class Kind : std::uint8_t {
    kForward,
    kBackward,       // input and weight gradients
    kInputGradient,  // half of a split backward: the previous stage waits for it
    kWeightGradient,
    kOverlapped,  // forward and backward of two microbatches together, communication of one under the other
  };
  Kind kind = Kind::kForward;
  std::int32_t microbatch = 0;
  std::int32_t chunk = 0;            // global, 0 holds the embedding
  std::int32_t back_microbatch = 0;  // kOverlapped: the backward half
  std::int32_t back_chunk = 0;
};
std::string_view name_of(PipelineSlot::Kind kind);  // "forward", "backward", "input gradient", ...

struct PipelineShape {
  int stages = 1;
  int virtual_stages = 1;  // chunks per stage; global chunk c lies on stage c mod stages
  int microbatches = 1;
  PipelineKind kind = PipelineKind::k1F1B;
  bool overlapped = false;  // forward and backward of the steady state are kOverlapped slots

  // kDualPipe: microbatches with even numbers go down the pipeline, with odd numbers up; each stage holds
  // chunk s and chunk stages-1-s.
  int stage_of(int chunk, int microbatch) const;
  int chunks() const { return stages * virtual_stages; }
};

// Returns the slots of every stage in order. Megatron's 1F1B and interleaved schedules (arXiv 2104.04473; one
// more warm-up microbatch where forward and backward overlap, so that no pair depends on itself), ZB-H1
// (arXiv 2401.10241: stage s delays s weight gradients), DualPipe as deepseek-ai/DualPipe runs it in eight
// steps. Throws InputError for shapes without such a schedule.
std::vector<std::vector<PipelineSlot>> pipeline_schedule(const PipelineShape& shape);

}  // namespace moesim::models
