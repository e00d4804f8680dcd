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

namespace {

Time rounded(double ps) {
  check(std::abs(std::round(ps)) < 9.2e18, "time is a number within 64 bits of picoseconds");
  return Time::from_ps(static_cast<std::int64_t>(std::round(ps)));
}

}  // namespace

Time Time::from_us(double us) { return rounded(us * 1e6); }

Time Time::from_seconds(double seconds) { return rounded(seconds * 1e12); }

}  // namespace moesim::sim
