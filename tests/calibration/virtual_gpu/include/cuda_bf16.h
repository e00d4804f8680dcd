// bfloat16 of the virtual GPU.
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  std::uint16_t bits = 0;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) {
    std::uint32_t raw;
    std::memcpy(&raw, &value, sizeof raw);
    bits = static_cast<std::uint16_t>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16);
  }
  operator float() const {
    const std::uint32_t raw = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &raw, sizeof value);
    return value;
  }
};
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
