// Times of a training step of each rank, alone on the device: per operation, and as a whole.
#pragma once

#include <vector>

#include "layer/world.h"

namespace moesim::bench {

struct Repeats {
  int warmup = 5;
  int iterations = 20;
};

struct RankTimes {
  double started = 0;                              // host clock, seconds
  std::vector<double> operations;                  // seconds, medians over the iterations; 0 for transfers
  double forward_jitter = 0, backward_jitter = 0;  // mean over median, minus one
  double step = 0;                                 // seconds of an uninterrupted step, median
  double step_low = 0, step_high = 0;
  Readings readings;  // of the device right after the step
};

// Alternates steps with and without a mark after every operation. The world must have run a step, and its
// rate must be 0: rows from other ranks then stay in place, and every step computes the same.
std::vector<RankTimes> measure(World& world, const Repeats& plan);

double sum(const std::vector<double>& values);

}  // namespace moesim::bench
