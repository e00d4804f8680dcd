// Targets of the handles Name and Shape; inside traces/ only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moesim::traces::detail {

// Both live in a Pool's arena, which never runs destructors: members must be trivially destructible.
struct InternedText {
  std::string_view text;
  std::uint32_t hash = 0;  // upper half of the hash, compared before the text
};

struct InternedShape {
  std::string_view text;
  std::span<const std::int64_t> dims;
  std::int64_t elements = 0;
  std::uint32_t hash = 0;
  bool none = false;
};

}  // namespace moesim::traces::detail
