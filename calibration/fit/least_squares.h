// Robust non-linear least squares over positive parameters (Levenberg-Marquardt on their logarithms).
#pragma once

#include <functional>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// A parameter of a law: start and bounds of its fit.
struct FittedParameter {
  const char* name;
  double start, low, high;
};

struct FitOptions {
  int iterations = 60;
  double huber = 0.1;             // larger residuals count linearly, not squared
  std::vector<double> low, high;  // bounds of the parameters; empty = none
};

struct FitResult {
  std::vector<double> values;
  std::vector<double> covariance;  // of the logarithms, row-major
  double rms = 0;                  // of the weighted residuals
};

// Finds positive parameters that minimise sum huber(residual). `residuals(parameters)` returns log(model /
// measured) of every row, always equally many. The covariance is rms^2 (J^T J)^-1 at the optimum
// (Moore-Penrose where the data leave a direction undetermined, with a standard deviation of 1 for that
// direction's parameters).
FitResult fit_log(std::vector<double> start,
                  const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
                  const FitOptions& options = {});

// Returns the log standard deviation whose 90 % interval holds 90 % of these residuals: outliers affect it
// little, unlike a root mean square.
double covering_sigma(const std::vector<double>& residuals);

// Extends the range of a quantity of `set` to `value`; adds the range where it is missing.
void widen(models::ParameterSet& set, const char* quantity, double value);

}  // namespace moesim::calibration
