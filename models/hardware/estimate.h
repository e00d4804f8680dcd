// A number with its uncertainty.
#pragma once

#include <span>
#include <string>

namespace moesim::models {

// A forecast with its 90 % interval; low == high == value only where the value is exact.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;

  static Estimate exact(double value) { return {value, value, value}; }

  // Returns value * exp(+-1.645 sigma): the interval of a value with a log-normal error of standard deviation
  // `sigma` (natural logarithm); sigma >= 0.
  static Estimate log_normal(double value, double sigma);

  // Returns `value` with the 5 % and 95 % quantiles of `samples` (linear between order statistics; not
  // empty), widened where needed so that low <= value <= high.
  static Estimate from_samples(double value, std::span<const double> samples);
};

// The range of one quantity ("bytes", "ranks", "nodes", "m", ...) that a fit covers.
struct DomainRange {
  std::string quantity;
  double low = 0;
  double high = 0;
};

}  // namespace moesim::models
