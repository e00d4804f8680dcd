// Pipelines of every kind of schedule, for tests that try them all.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "models/step/pipeline_schedule.h"

namespace moesim::models::testing {

inline PipelineShape shape_of(PipelineKind kind, int stages, int virtual_stages, int microbatches,
                              bool overlapped = false) {
  return {stages, virtual_stages, microbatches, kind, overlapped};
}

struct NamedShape {
  PipelineShape shape;
  std::string name;
};

// In the names of tests, which are bytes otherwise.
inline void PrintTo(const NamedShape& shape, std::ostream* out) { *out << shape.name; }

inline std::vector<NamedShape> every_schedule() {
  return {{shape_of(PipelineKind::k1F1B, 1, 1, 3), "alone"},
          {shape_of(PipelineKind::k1F1B, 4, 1, 9), "one_f_one_b"},
          {shape_of(PipelineKind::k1F1B, 4, 1, 2), "fewer_microbatches_than_stages"},
          {shape_of(PipelineKind::k1F1B, 4, 3, 8), "interleaved"},
          {shape_of(PipelineKind::k1F1B, 4, 1, 12, true), "overlapped"},
          {shape_of(PipelineKind::k1F1B, 4, 2, 12, true), "interleaved_overlapped"},
          {shape_of(PipelineKind::kZeroBubble, 4, 1, 9), "zero_bubble"},
          {shape_of(PipelineKind::kDualPipe, 4, 1, 8), "dual_pipe"},
          {shape_of(PipelineKind::kDualPipe, 8, 1, 20), "dual_pipe_eight"}};
}

}  // namespace moesim::models::testing
