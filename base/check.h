// Invariants of our own. A broken one is a bug: it aborts loudly in every build type.
#pragma once

#include <source_location>
#include <string_view>

namespace moesim {

[[noreturn]] void check_failed(std::string_view what,
                               std::source_location where = std::source_location::current());

// Aborts with the place and `what` on stderr unless `holds`.
inline void check(bool holds, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    check_failed(what, where);
}

}  // namespace moesim
