// A whole training step of a mixture-of-experts model in which every rank has its own routing, streamed into
// the simulator: DeepSeek-V3's shape (arXiv:2412.19437: 61 layers of which 3 are dense, hidden size 7168, 256
// experts of width 2048, top-8), PP16 EP64, 1F1B, forward and backward, calibrated timing.
#pragma once

#include <cstdint>

#include "sim/run/timeline.h"

namespace moesim::bench {

struct StepShape {
  std::uint32_t ranks = 2048;  // a multiple of stages x expert_parallel
  std::uint32_t stages = 16;
  std::uint32_t expert_parallel = 64;
  std::uint32_t layers = 61;
  std::uint32_t dense_layers = 3;
  std::uint32_t experts = 256;
  std::uint32_t top_k = 8;
  std::uint32_t tokens = 4096;  // per rank and microbatch
  std::uint32_t microbatches = 64;
};

struct StepResult {
  sim::Timeline timeline;
  std::uint64_t tasks = 0;
  std::uint64_t routing_matrices = 0;
};

// The rows that each rank sends to each other are drawn anew for every layer, microbatch and rank: expert
// popularity by layer times noise by rank, no two ranks alike.
StepResult run_training_step(const StepShape& shape);

}  // namespace moesim::bench
