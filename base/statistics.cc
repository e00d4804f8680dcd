#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include <boost/math/special_functions/erf.hpp>

#include "base/check.h"

namespace moesim {

double quantile(std::span<const double> sorted, double share) {
  check(!sorted.empty(), "a quantile of something");
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double quantile_of(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return quantile(values, share);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

double normal_below(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

double normal_quantile(double probability) {
  check(probability > 0 && probability < 1, "a probability between 0 and 1");
  return -std::numbers::sqrt2 * boost::math::erfc_inv(2 * probability);
}

}  // namespace moesim
