// Internal invariants. A violation is a bug and aborts with a message in every build type.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace moesim {

[[noreturn]] void check_failed(std::string_view what, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE());

// Aborts with place and `what` on stderr unless `holds`. The place comes from built-ins of GCC and clang,
// since clang 14 (the fuzzers' compiler) has no std::source_location.
inline void check(bool holds, std::string_view what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!holds) [[unlikely]]
    check_failed(what, file, line);
}

// Overflow-checked products of sizes from files and command lines.

// Limit on any size, in bytes or rows: sums of a hundred sizes stay within 64 bits.
inline constexpr std::int64_t kMostSize = std::int64_t{1} << 56;

// Returns the product of non-negative numbers. Throws InputError "what: found ..., expected ..." above
// kMostSize.
std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors);

}  // namespace moesim
