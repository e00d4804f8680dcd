// How far simulated clocks go.
#pragma once

#include <cstdint>

namespace moesim::sim {

// No clock goes beyond it (26 days), so that sums of clocks and of operations never leave 64 bits.
inline constexpr std::int64_t kLastPs = std::int64_t{1} << 61;
// Throws InputError for a clock beyond kLastPs.
void check_clock(std::int64_t ps);

}  // namespace moesim::sim
