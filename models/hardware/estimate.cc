#include "models/hardware/estimate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace moesim::models {
namespace {

constexpr double kZ90 = 1.6448536269514722;  // half width of a 90 % interval in standard deviations

}  // namespace

double quantile(std::span<const double> sorted, double share) {
  check(!sorted.empty(), "a quantile of something");
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Estimate Estimate::log_normal(double value, double sigma) {
  const double spread = std::exp(kZ90 * sigma);
  return {value, value / spread, value * spread};
}

Estimate Estimate::from_samples(double value, std::span<const double> samples) {
  check(!samples.empty(), "an interval needs samples");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return {value, std::min(value, quantile(sorted, 0.05)), std::max(value, quantile(sorted, 0.95))};
}

}  // namespace moesim::models
