#include "models/step/jitter.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace moesim::models {

namespace {

// ByteDance-Seed/StragglerAnalysis at 8efcd7f3, trace AR: log_ratio_sd and autocorr_call.
constexpr double kPassSigma = 0.0163, kCommon = 0.163;
// Traces AR and ST: 2 of their 76 steps, 3.7 and 7.6 % long.
constexpr double kSpikeShare = 2.0 / 76, kSpike = 0.057;

}  // namespace

StepQuantiles step_quantiles(const Parallel& p, double us) {
  const double passes = 2.0 * static_cast<double>(std::max<std::int64_t>(1, p.microbatches));
  const double sigma = kPassSigma * std::sqrt(kCommon + (1 - kCommon) / passes);
  const std::int64_t meet = std::max(p.tp * p.cp, p.dispatch_ranks());
  const double groups =
      static_cast<double>(std::max<std::int64_t>(1, p.world() / std::max<std::int64_t>(1, meet)));
  // Share of the steps that take at most 1 + x times the nominal one.
  const auto share = [&](double x) {
    return (1 - kSpikeShare) * std::pow(normal_below(x / sigma), groups) +
           kSpikeShare * std::pow(normal_below((x - kSpike) / sigma), groups);
  };
  const auto quantile = [&](double of) {
    double low = -0.5, high = 0.5;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (share(middle) < of ? low : high) = middle;
    }
    return 1 + low;
  };
  const double usual = quantile(0.5);
  return {us, us * quantile(0.9) / usual, us * quantile(0.99) / usual};
}

}  // namespace moesim::models
