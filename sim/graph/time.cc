#include "sim/graph/time.h"

#include <cmath>

#include "base/check.h"

namespace moesim::sim {

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
