// Products of sizes that come from files and command lines.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace moesim {

// No size of anything is larger, in bytes or rows: sums of a hundred of them stay within 64 bits.
inline constexpr std::int64_t kMostSize = std::int64_t{1} << 56;

// The product of numbers that are not negative. Throws InputError "what: found ..., expected ..." where it is
// more than kMostSize.
std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors);

}  // namespace moesim
