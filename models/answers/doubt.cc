#include "models/answers/doubt.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/statistics.h"

namespace moesim::models {

std::string launches_of(std::string_view dispatcher) { return "launches of " + std::string(dispatcher); }

std::string exchanges_of(std::string_view dispatcher) { return "exchanges of " + std::string(dispatcher); }

void add_doubt(Forecast& f, const Doubt& doubt) {
  if (f.draws_us.empty()) return;
  const double us = f.time_us.value, sigma = doubt.step_sigma;
  doubt_unmeasured(f.unmeasured, us, f.draws_us);
  double unpublished = 0;  // share of the device's time, of which the host may hide a part
  for (const DomainReport::Unmeasured& one : f.unmeasured)
    if (one.exchange) unpublished += one.share;
  unpublished = std::min(unpublished, doubt.exchanges);
  for (double& draw : f.draws_us) draw += us * unpublished * std::expm1(kUnpublishedKernel);
  f.time_us = Estimate::from_samples(us, f.draws_us);
  if (sigma > 0) {
    // The two sources of doubt are independent.
    const auto widened = [&](double bound, double sign) {
      return us * std::exp(sign * std::hypot(std::log(bound / us), kZ90 * sigma));
    };
    f.time_us.low = widened(f.time_us.low, -1);
    f.time_us.high = widened(f.time_us.high, 1);
  }
  const std::string base = doubt.dispatcher.substr(0, doubt.dispatcher.find(':'));
  const auto add = [&](std::string name, double share, double by) {
    const DomainReport::Unmeasured part{std::move(name), share};
    doubt_unmeasured(std::span(&part, 1), us, f.draws_us, by);
  };
  add(launches_of(base), doubt.launches, launch_sigma(sigma > 0));
  add(exchanges_of(doubt.dispatcher), doubt.exchanges, kExchangeSigma);
  add("steps of " + doubt.dispatcher, 1, kArmSigma);
  const Estimate drawn = Estimate::from_samples(us, f.draws_us);
  f.time_us.low = std::min(f.time_us.low, drawn.low);
  f.time_us.high = std::max(f.time_us.high, drawn.high);
}

}  // namespace moesim::models
