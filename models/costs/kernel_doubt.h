// Additional uncertainty of a dispatch kernel outside of its measured range.
#pragma once

#include <string>
#include <string_view>

#include "models/costs/domain_report.h"
#include "models/hardware/profile.h"

namespace moesim::models {

// Returns the log standard deviation of the time of a kernel on `ranks` ranks with `tokens` tokens each,
// where rows cover the given ranges: 0 inside. EP sizes left out of a fit are off by 9.3 % in the median and
// 33 % in the mean with 85 % of their rows inside, decades of tokens by 11 % with 88 % inside
// (docs/calibration.md). The two numbers are chosen in view of these errors, not fitted to them.
inline double kernel_doubt(const DomainRange& measured_ranks, const DomainRange& measured_tokens,
                           double ranks, double tokens) {
  constexpr double kPerRankOctave = 0.2, kPerTokenOctave = 0.04;
  return kPerRankOctave * octaves_outside(measured_ranks, ranks) +
         kPerTokenOctave * octaves_outside(measured_tokens, tokens);
}

// Likewise from the ranges of a law; a quantity without a range adds nothing.
inline double kernel_doubt(const ParameterSet& law, double ranks, double tokens) {
  const auto range = [&](std::string_view quantity, double value) {
    const DomainRange* measured = law.range(quantity);
    return measured ? *measured : DomainRange{std::string(quantity), value, value};
  };
  return kernel_doubt(range("ranks", ranks), range("tokens", tokens), ranks, tokens);
}

}  // namespace moesim::models
