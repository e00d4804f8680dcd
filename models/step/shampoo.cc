#include "models/step/shampoo.h"

#include <algorithm>

namespace moesim::models {

namespace {

// Products of block side cubed per block: two that update the factors, two that precondition the gradient.
constexpr double kFactorProducts = 2, kGradientProducts = 2;
// FLOPs of the root of a factor per side cubed: eigenvalues and vectors of a symmetric matrix (LAPACK's count
// of 9), and the product of vectors, roots and vectors.
constexpr double kRootFlops = 9 + 2;
constexpr double kFactors = 2;  // per block

std::int64_t start_of(const Shampoo& plan) { return plan.start > 0 ? plan.start : plan.frequency; }

}  // namespace

ShampooWork shampoo_work(const Shampoo& plan) {
  const double all = kFactorProducts + kGradientProducts;
  if (plan.step == 0) return {all, 1 / static_cast<double>(plan.frequency)};
  const bool preconditions = plan.step >= start_of(plan);
  const bool roots = preconditions && (plan.step - start_of(plan)) % plan.frequency == 0;
  return {preconditions ? all : kFactorProducts, roots ? 1.0 : 0.0};
}

double shampoo_seconds(double elements, std::int64_t side, const ShampooWork& work, const GemmModel& gemms,
                       double fp32_flops) {
  const auto d = static_cast<double>(side);
  const double blocks = elements / (d * d);
  const double product = gemms.seconds({side, side, side}, DType::kFp32);
  const double root = kFactors * kRootFlops * d * d * d / fp32_flops;
  return blocks * (work.products * product + work.roots * root);
}

}  // namespace moesim::models
