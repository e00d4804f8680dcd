// Numbers, and the parts of kernels that a GPU and a CPU share: the work of one thread or one lane of a warp.
// Compiles on the host and with nvcc, so that host tests exercise the index arithmetic of the kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define MOESIM_BOTH __host__ __device__
#else
#define MOESIM_BOTH
#endif

namespace moesim::bench {

struct Bf16 {
  std::uint16_t bits;
};

MOESIM_BOTH inline float to_float(float value) { return value; }
MOESIM_BOTH inline float to_float(Bf16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// Rounds to nearest, ties to even; NaN stays NaN.
template <class T>
MOESIM_BOTH T from_float(float value);
template <>
MOESIM_BOTH inline float from_float<float>(float value) {
  return value;
}
template <>
MOESIM_BOTH inline Bf16 from_float<Bf16>(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// The unit of a thread's loads and stores: 16 bytes.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T v[kSize];
};

template <class T>
MOESIM_BOTH Pack<T> load(const void* row, std::size_t pack) {
  return static_cast<const Pack<T>*>(row)[pack];
}
template <class T>
MOESIM_BOTH void store(void* row, std::size_t pack, const Pack<T>& value) {
  static_cast<Pack<T>*>(row)[pack] = value;
}

// Returns a normal random number for a counter (splitmix64, Box-Muller).
MOESIM_BOTH inline float normal_of(std::uint64_t counter) {
  std::uint64_t z = counter * 0x9e3779b97f4a7c15ULL + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  const float u = static_cast<float>(static_cast<unsigned>(z >> 40) + 1) / 16777217.0f;
  const float v = static_cast<float>(static_cast<unsigned>(z & 0xffffffu)) / 16777216.0f;
  return sqrtf(-2 * logf(u)) * cosf(6.283185307f * v);
}

MOESIM_BOTH inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Returns the piece, of `count`, that contains the row; piece c spans starts[c] to starts[c + 1] and may be
// empty.
MOESIM_BOTH inline int piece_of(const int* starts, int count, int row) {
  int low = 0, high = count;  // starts[low] <= row < starts[high]
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (starts[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// An expert and its score; among equal scores the lower expert wins.
struct Best {
  float score;
  int expert;
};
MOESIM_BOTH inline Best better(Best a, Best b) {
  return b.score > a.score || (b.score == a.score && b.expert < a.expert) ? b : a;
}

}  // namespace moesim::bench
