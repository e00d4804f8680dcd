// Every reader must answer any bytes, or refuse them in one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Number of accepted inputs so far; seeds must be accepted.
inline std::size_t accepted_so_far = 0;
inline std::string last_refusal;

// Runs `read`; false when it refused. Aborts where the refusal has more than one line, or says nothing.
template <class Read>
bool accepted(const Read& read) {
  try {
    read();
    ++accepted_so_far;
    return true;
  } catch (const InputError& error) {
    const std::string_view what = error.what();
    last_refusal = what;
    check(!what.empty() && what.find('\n') == std::string_view::npos, "an error is one line");
    return false;
  }
}

}  // namespace moesim::fuzz
