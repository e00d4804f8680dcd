#include "traces/plain_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/input_error.h"

namespace moesim::traces {
namespace {

// Returns the bytes of the well-formed character at the front of `text`, 0 if there is none (table 3-7 of the
// Unicode standard).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7F) || first == '\n' ? 1 : 0;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_high = first == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !too_high ? 4 : 0;
  }
  return 0;
}

// Returns true when all eight bytes are plain ASCII from 0x20 to 0x7E. The bit trick for "a byte below 0x20"
// reports a false alarm only above a real one; the caller then checks byte by byte.
bool plain_eight(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::uint64_t kHigh = 0x8080808080808080u;
  const std::uint64_t below_space = (word - 0x20 * kOnes) & ~word;
  const std::uint64_t deleted = word + kOnes;  // 0x7F becomes 0x80
  return ((word | below_space | deleted) & kHigh) == 0;
}

}  // namespace

void check_plain_text(std::string_view text, const std::string& file) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && plain_eight(text.data() + at)) {
      at += 8;
      continue;
    }
    const std::size_t length = character_length(text.substr(at, 4));
    if (length == 0) {
      const std::string_view before = text.substr(0, at);
      const auto line = 1 + static_cast<long>(std::count(before.begin(), before.end(), '\n'));
      const std::size_t line_start = before.rfind('\n');
      const auto column = static_cast<long>(line_start == std::string_view::npos ? at + 1 : at - line_start);
      char byte[8];
      std::snprintf(byte, sizeof byte, "0x%02x", static_cast<unsigned char>(text[at]));
      throw InputError({file, line, column}, std::string("the byte ") + byte,
                       text[at] == '\r' ? "line breaks without a carriage return"
                                        : "UTF-8 text without control characters");
    }
    at += length;
  }
}

}  // namespace moesim::traces
