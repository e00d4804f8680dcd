// Internal invariants. A violation is a bug and aborts with a message in every build type.
#pragma once

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

}  // namespace moesim
