// What Distributed Shampoo (arXiv 2309.06497) adds to a step: its preconditioners' products and roots, and
// what it holds.
#pragma once

#include <cstdint>

#include "models/costs/gemm.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

// Bytes per element of a weight: two factors and two roots of fp32, square blocks as large as the weight's.
inline constexpr double kShampooStateBytes = 16;

// Which work a step does; shares of 1 where it does it.
struct ShampooWork {
  double products = 0;  // factors are updated in every step, gradients preconditioned from the start on
  double roots = 0;
};
// Of the asked step, or the mean of a period after the start.
ShampooWork shampoo_work(const Shampoo& plan);

// Seconds on a rank that has so many elements in blocks of `side`. The roots' eigenvalue decompositions were
// not measured: their FLOPs are taken at the fp32 rate of `device`, which bounds them from below.
double shampoo_seconds(double elements, std::int64_t side, const ShampooWork& work, const GemmModel& gemms,
                       double fp32_flops);

}  // namespace moesim::models
