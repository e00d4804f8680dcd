#include "sim/graph/time.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::sim {

void check_clock(std::int64_t ps) {
  if (ps > kLastPs)
    throw InputError(fmt::format(
        "time: found more than {:.0f} days, which no clock here counts, expected a shorter step or layer",
        Time::from_ps(kLastPs).seconds() / 86400));
}

Time Time::from_us(double us) {
  const double ps = std::round(us * 1e6);
  check(std::abs(ps) < 9.2e18, "time is a number within 64 bits of picoseconds");
  return from_ps(static_cast<std::int64_t>(ps));
}

Time Time::from_seconds(double seconds) {
  const double ps = std::round(seconds * 1e12);
  check(std::abs(ps) < 9.2e18, "time is a number within 64 bits of picoseconds");
  return from_ps(static_cast<std::int64_t>(ps));
}

}  // namespace moesim::sim
