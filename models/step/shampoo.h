// Cost of Distributed Shampoo (arXiv 2309.06497) in a step: products and roots of its preconditioners, and
// its state.
#pragma once

#include <cstdint>

#include "models/costs/gemm.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// Bytes per weight element: two factors and two roots in fp32, square blocks as large as the weight's.
inline constexpr double kShampooStateBytes = 16;

// Shares of the work in a step; 1 where the step does all of it.
struct ShampooWork {
  double products = 0;  // factors are updated in every step; gradients are preconditioned from `start` on
  double roots = 0;
};
// For the requested step, or the mean over a period after the start.
ShampooWork shampoo_work(const Shampoo& plan);

// Returns seconds on a rank with so many elements in blocks of `side`. The roots' eigenvalue decompositions
// were not measured: their FLOPs are priced at the fp32 rate of `device`, a lower bound.
double shampoo_seconds(double elements, std::int64_t side, const ShampooWork& work, const GemmModel& gemms,
                       double fp32_flops);

}  // namespace moesim::models
