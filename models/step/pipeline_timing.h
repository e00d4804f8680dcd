// When the passes of a pipeline start and end. The order on every stage is fixed, so that the recursion of
// the simulator (in-order streams, dependencies between stages) can be followed pass by pass: exact and
// linear. tests/models/pipeline_timing_test.cc holds it against sim::run on the same passes.
#pragma once

#include <cstdint>
#include <vector>

#include "models/step/pipeline_schedule.h"

namespace moesim::models {

// Durations in picoseconds. The vectors go by global chunk.
struct PipelineTimes {
  std::vector<std::int64_t> forward, backward, input_gradient, weight_gradient;
  std::vector<std::int64_t> overlapped;  // by forward chunk * chunks + backward chunk; empty where not used
  std::int64_t send = 0;                 // of one activation (or gradient) to the next stage
  // First and last microbatch: a chunk's parameters arrive no earlier than this (their all-gather after the
  // optimizer of the step before), and its gradients travel this long after its last backward. Transfers of
  // one stage go one after the other. Empty: none.
  std::vector<std::int64_t> parameters, gradients;
  // Pieces in which they travel, by chunk: with overlap, the first piece of parameters is enough to start the
  // chunk and the last piece of gradients is what is left when it ends. Empty: one.
  std::vector<std::int32_t> pieces;
  // By chunk: how long its own collectives hold the link that parameters and gradients take. Empty: never.
  std::vector<std::int64_t> forward_link, backward_link;
  bool gradients_overlap = true;  // otherwise all gradients travel after the last pass of the stage
  bool parameters_overlap = true;
  std::vector<std::int64_t> optimizer;  // by stage, when all its gradients have come; empty: none
};

struct StageTiming {
  std::int64_t end = 0;
  std::int64_t computing = 0;   // in passes
  std::int64_t bubble = 0;      // idle until the last pass has ended, without what follows
  std::int64_t sends = 0;       // idle because a message was still under way
  std::int64_t parameters = 0;  // idle because parameters had not come yet
  std::int64_t gradients = 0;   // after the last pass: gradients still travelling
  std::int64_t optimizer = 0;
};

struct PipelineTiming {
  std::int64_t total = 0;
  int critical_stage = 0;  // the first that ends last
  std::vector<StageTiming> stages;
};

// Aborts (check) for a schedule that cannot be performed.
PipelineTiming time_pipeline(const PipelineShape& shape,
                             const std::vector<std::vector<PipelineSlot>>& schedule,
                             const PipelineTimes& times);

}  // namespace moesim::models
