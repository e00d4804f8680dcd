#include "calibration/fit/fit_kernels.h"

#include <algorithm>
#include <cmath>

#include "calibration/fit/least_squares.h"

namespace moesim::calibration {

models::ParameterSet fit_kernel(const models::Profile& profile,
                                const std::vector<Measurements::KernelRow>& rows) {
  const double bandwidth = profile.device().hbm_bandwidth * profile.device().hbm_efficiency;
  models::ParameterSet set;
  set.law = "memory-bound";
  set.names = {"floor", "share"};
  double fastest = rows.front().seconds / rows.front().launches;
  for (const auto& row : rows) fastest = std::min(fastest, row.seconds / row.launches);
  FitOptions options;
  options.low = {1e-8, 1e-3};
  options.high = {1e-2, 2.0};
  const FitResult fit = fit_log(
      {std::clamp(fastest, 1e-8, 1e-2), 0.7},
      [&](const std::vector<double>& p) {
        std::vector<double> residuals;
        residuals.reserve(rows.size());
        for (const auto& row : rows)
          residuals.push_back(std::log((row.launches * p[0] + row.bytes / (bandwidth * p[1])) / row.seconds));
        return residuals;
      },
      options);
  set.values = fit.values;
  set.covariance = fit.covariance;
  set.residual = fit.rms;
  set.rows = static_cast<int>(rows.size());
  set.source = rows.front().origin.source;
  double low = rows.front().bytes, high = low;
  for (const auto& row : rows) {
    low = std::min(low, row.bytes);
    high = std::max(high, row.bytes);
  }
  set.domain.push_back({"bytes", low, high});
  return set;
}

}  // namespace moesim::calibration
