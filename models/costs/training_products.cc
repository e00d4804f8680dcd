#include "models/costs/training_products.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moesim::models {

namespace {

// Inference libraries are measured with bf16 operands that they convert inside the call. Training converts
// once for two products (and in both orientations), which is counted separately, so the call's own pass is
// removed.
Profile converted_already(const Profile& profile) {
  Profile result = profile;
  for (const auto& [key, set] : profile.sets()) {
    if (!key.starts_with("gemm/fp8") && !key.starts_with("grouped_gemm/fp8")) continue;
    ParameterSet changed = set;
    for (std::size_t i = 0; i < changed.names.size(); ++i)
      if (changed.names[i] == "input_pass" || changed.names[i] == "host") changed.values[i] = 1e-9;
    result.set(key, std::move(changed));
  }
  return result;
}

}  // namespace

double slowest_of(std::int64_t gpus) {
  if (gpus < 2) return 1;
  // arXiv 2208.11035: 8 % from whisker to whisker of a normal distribution
  constexpr double kSpread = 0.08 / 5.4;
  constexpr double kEuler = 0.5772156649, kLog4Pi = 2.5310242469;
  const double root = std::sqrt(2 * std::log(static_cast<double>(gpus)));
  const double log_log = std::log(std::log(static_cast<double>(gpus)));
  return 1 + kSpread * (root - (log_log + kLog4Pi) / (2 * root) + kEuler / root);
}

TrainingProducts::TrainingProducts(const Profile& profile, const ProductRecipe& recipe)
    : recipe_(recipe), gemms_(converted_already(profile)) {
  // MXFP8 has no measurements; its products run on the same units at the same rate as fp8's, which have.
  if (recipe_.gemm == DType::kMxFp8 && !profile.find("gemm/mxfp8") && profile.find("gemm/fp8"))
    recipe_.gemm = DType::kFp8;
  seconds_per_byte_ = 1 / (profile.device().hbm_bandwidth * profile.device().hbm_efficiency * 0.95);
  power_ = profile.device().power_slowdown * recipe.slowest;
  floor_ = profile.launch().kernel_floor;
  // Reads bf16, writes one byte row-major and one byte transposed (the weight gradient contracts over rows).
  // A scale for the whole tensor needs the largest element first: one more read.
  // FP4 needs that largest element too, and writes half a byte and a scale each.
  conversion_bytes_ = !converts() ? 0 : recipe.gemm == DType::kFp8 ? 6 : recipe.gemm == DType::kFp4 ? 5 : 4;
  // Kernels that convert their own output neither write it as bf16 nor read it again.
  if (recipe.fused) conversion_bytes_ /= 2;
}

double TrainingProducts::conversion(double elements) const {
  return conversion_bytes_ == 0
             ? 0
             : recipe_.conversions * (floor_ + elements * conversion_bytes_ * seconds_per_byte_);
}

// The gradient of the weights is added to that of earlier microbatches. A tile's accumulator is read and
// written after its main loop, which overlaps only partly with the main loops of other tiles: between the
// longer of the two (full overlap) and their sum (none).
double TrainingProducts::accumulated(double seconds, double weights) const {
  return std::hypot(seconds, weights * 2 * recipe_.accumulator_bytes * seconds_per_byte_);
}

double TrainingProducts::plain(std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass) const {
  const double seconds = power_ * gemms_.seconds(turned({m, n, k}, pass), DType::kBf16);
  return pass == GemmPass::kWgrad ? accumulated(seconds, static_cast<double>(n) * static_cast<double>(k))
                                  : seconds;
}

std::optional<OutsideDomain> TrainingProducts::outside(GemmShape forward, GemmPass pass, bool plain) const {
  return gemms_.outside(turned(forward, pass), plain ? DType::kBf16 : recipe_.gemm);
}

std::optional<OutsideDomain> TrainingProducts::grouped_outside(std::span<const std::int64_t> rows,
                                                               std::int64_t n, std::int64_t k, GemmPass pass,
                                                               GemmBackend backend) const {
  return gemms_.grouped_outside(rows, n, k, recipe_.gemm, pass, backend);
}

double TrainingProducts::dense(std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass) const {
  if (!converts()) return plain(m, n, k, pass);
  const double seconds = power_ * gemms_.seconds(turned({m, n, k}, pass), recipe_.gemm);
  const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
  switch (pass) {
    case GemmPass::kForward:
      return seconds + conversion(dm * dk);
    case GemmPass::kDgrad:
      return seconds + conversion(dm * dn);
    case GemmPass::kWgrad:
      break;  // both operands were converted for the other two
  }
  return accumulated(seconds, dn * dk);
}

double TrainingProducts::grouped(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k,
                                 GemmPass pass, GemmBackend backend) const {
  double total = 0, active = 0;
  std::int64_t all = 0;
  for (const std::int64_t m : rows) all += m, active += m > 0;
  total = static_cast<double>(all);
  // Many products in one launch are not faster than one product of all rows (the two laws come from different
  // libraries).
  const double seconds = power_ * std::max(gemms_.grouped_seconds(rows, n, k, recipe_.gemm, pass, backend),
                                           gemms_.seconds(turned({all, n, k}, pass), recipe_.gemm));
  const double dn = static_cast<double>(n), dk = static_cast<double>(k);
  switch (pass) {
    case GemmPass::kForward:
      return seconds + conversion(total * dk);
    case GemmPass::kDgrad:
      return seconds + conversion(total * dn);
    case GemmPass::kWgrad:
      break;
  }
  return accumulated(seconds, active * dn * dk);
}

}  // namespace moesim::models
