// Overflow-checked products of sizes from files and command lines.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace moesim {

// Limit on any size, in bytes or rows: sums of a hundred sizes stay within 64 bits.
inline constexpr std::int64_t kMostSize = std::int64_t{1} << 56;

// Returns the product of non-negative numbers. Throws InputError "what: found ..., expected ..." above
// kMostSize.
std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors);

}  // namespace moesim
