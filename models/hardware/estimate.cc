#include "models/hardware/estimate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/statistics.h"

namespace moesim::models {

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
