// The range of simulated clocks.
#pragma once

#include <cstdint>

namespace moesim::sim {

// Largest value of a clock (26 days), so that sums of clocks and durations never leave 64 bits.
inline constexpr std::int64_t kLastPs = std::int64_t{1} << 61;
// Throws InputError for a clock beyond kLastPs.
void check_clock(std::int64_t ps);

}  // namespace moesim::sim
