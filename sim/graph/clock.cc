#include "sim/graph/clock.h"

#include <fmt/format.h>

#include "base/input_error.h"
#include "sim/graph/time.h"

namespace moesim::sim {

void check_clock(std::int64_t ps) {
  if (ps > kLastPs)
    throw InputError(fmt::format(
        "time: found more than {:.0f} days, which no clock here counts, expected a shorter step or layer",
        Time::from_ps(kLastPs).seconds() / 86400));
}

}  // namespace moesim::sim
