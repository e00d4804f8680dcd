// fp8 (e4m3) of the virtual GPU: four bits of exponent, three of mantissa, 448 the largest, no infinity.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

struct __nv_fp8_e4m3 {
  std::uint8_t bits = 0;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float value) {
    const float size = std::min(std::fabs(value), 448.0f);
    const int exponent = size > 0 ? std::max(std::ilogb(size), -6) : -6;
    int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));  // of an eighth
    int field = exponent + 7;
    if (steps >= 16) steps = 8, ++field;
    bits = static_cast<std::uint8_t>((std::signbit(value) ? 0x80 : 0) |
                                     (steps < 8 ? steps : (field << 3) | (steps - 8)));
  }
  explicit operator float() const {
    const int field = (bits >> 3) & 15, steps = bits & 7;
    const float size = field == 0 ? std::ldexp(static_cast<float>(steps), -9)
                                  : std::ldexp(static_cast<float>(8 + steps), field - 10);
    return bits & 0x80 ? -size : size;
  }
};
