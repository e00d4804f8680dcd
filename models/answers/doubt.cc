#include "models/answers/doubt.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/statistics.h"

namespace moesim::models {

std::string launches_of(std::string_view dispatcher) {
  return "launches of " + std::string(dispatcher.substr(0, dispatcher.find(':')));
}

std::string exchanges_of(std::string_view dispatcher) { return "exchanges of " + std::string(dispatcher); }

std::string unpublished_kernels_of(std::string_view dispatcher) {
  return "kernels of " + std::string(dispatcher) + ", not published for this machine";
}

double unpublished_kernel_factor(std::string_view dispatcher, std::size_t draw) {
  return std::exp(kUnpublishedKernel) *
         unmeasured_factor(unpublished_kernels_of(dispatcher), draw, kUnpublishedSpread);
}

void doubt_part(Forecast& f, std::string part, double share, double sigma) {
  const DomainReport::Unmeasured one{std::move(part), share};
  doubt_unmeasured(std::span(&one, 1), f.time_us.value, f.draws_us, sigma);
}

void add_doubt(Forecast& f, const Doubt& doubt) {
  if (f.draws_us.empty()) return;
  const double us = f.time_us.value, sigma = doubt.step_sigma;
  doubt_unmeasured(f.unmeasured, us, f.draws_us);
  double unpublished = 0;  // share of the GPU's time, which the host may partly hide
  for (const DomainReport::Unmeasured& one : f.unmeasured)
    if (one.exchange) unpublished += one.share;
  unpublished = std::min(unpublished, doubt.exchanges);
  if (unpublished > 0)
    for (std::size_t d = 0; d < f.draws_us.size(); ++d)
      f.draws_us[d] += us * unpublished * (unpublished_kernel_factor(doubt.dispatcher, d) - 1);
  f.time_us = Estimate::from_samples(us, f.draws_us);
  if (sigma > 0) {
    // The two sources of doubt are independent.
    const auto widened = [&](double bound, double sign) {
      return us * std::exp(sign * std::hypot(std::log(bound / us), kZ90 * sigma));
    };
    f.time_us.low = widened(f.time_us.low, -1);
    f.time_us.high = widened(f.time_us.high, 1);
  }
  doubt_part(f, launches_of(doubt.dispatcher), doubt.launches, launch_sigma(sigma > 0));
  doubt_part(f, exchanges_of(doubt.dispatcher), doubt.exchanges, kExchangeSigma);
  doubt_part(f, "steps of " + doubt.dispatcher, 1, kArmSigma);
  const Estimate drawn = Estimate::from_samples(us, f.draws_us);
  f.time_us.low = std::min(f.time_us.low, drawn.low);
  f.time_us.high = std::max(f.time_us.high, drawn.high);
}

}  // namespace moesim::models
