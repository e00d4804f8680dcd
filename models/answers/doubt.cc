#include "models/answers/doubt.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace moesim::models {

std::string launches_of(std::string_view dispatcher) { return "launches of " + std::string(dispatcher); }

void add_doubt(Forecast& f, double sigma, std::string_view dispatcher, double launches) {
  if (f.draws_us.empty()) return;
  const double us = f.time_us.value;
  doubt_unmeasured(f.unmeasured, us, f.draws_us);
  f.time_us = Estimate::from_samples(us, f.draws_us);
  if (sigma > 0) {
    // The two sources of doubt are independent.
    const auto widened = [&](double bound, double sign) {
      return us * std::exp(sign * std::hypot(std::log(bound / us), 1.645 * sigma));
    };
    f.time_us.low = widened(f.time_us.low, -1);
    f.time_us.high = widened(f.time_us.high, 1);
  }
  const DomainReport::Unmeasured part{launches_of(dispatcher), launches};
  doubt_unmeasured(std::span(&part, 1), us, f.draws_us, kLaunchSigma);
  const Estimate drawn = Estimate::from_samples(us, f.draws_us);
  f.time_us.low = std::min(f.time_us.low, drawn.low);
  f.time_us.high = std::max(f.time_us.high, drawn.high);
}

}  // namespace moesim::models
