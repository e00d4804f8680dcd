// Times of a training step of each rank, alone on the device: operation by operation, and as a whole.
#pragma once

#include <vector>

#include "layer/world.h"

namespace moesim::bench {

struct MeasurePlan {
  int warmup = 5;
  int iterations = 20;
};

struct RankTimes {
  double started = 0;                              // host clock, seconds
  std::vector<double> operations;                  // seconds, medians over the iterations; 0 of transfers
  double forward_jitter = 0, backward_jitter = 0;  // mean over median, less one
  double step = 0;                                 // seconds of a step that nothing interrupts, median
  double step_low = 0, step_high = 0;
  Readings readings;  // of the device right after
};

// Steps without and with a mark after every operation take turns. The world has to have taken a step, and its
// rate to be 0: then rows from other ranks are where they were left, and every step computes the same.
std::vector<RankTimes> measure(World& world, const MeasurePlan& plan);

double sum(const std::vector<double>& values);

}  // namespace moesim::bench
