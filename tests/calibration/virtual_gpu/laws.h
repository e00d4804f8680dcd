// The laws planted in the virtual GPU, in seconds and bytes; made up, near an H100's. Tests compare what the
// suite prints with these.
#pragma once

#include <algorithm>
#include <cmath>

namespace moesim::virtual_gpu {

inline constexpr double kHbm = 3.0e12, kL2Rate = 7.5e12;  // bytes/s
inline constexpr double kL2 = 50e6, kMemory = 80e9;       // bytes
inline constexpr double kFloor = 2.2e-6;                  // of a kernel
inline constexpr double kLaunch = 2.4e-6;                 // host time of a launch
inline constexpr double kRecord = 0.9e-6;                 // host time of an event
inline constexpr double kSubmit = 2.0e-6;                 // from the host's call until an idle GPU begins
inline constexpr double kWake = 3.0e-6;                   // from the end of work until a waiting host goes on
inline constexpr double kCopyCall = 1.5e-6, kCopy = 1.6e-6, kLink = 55e9;
inline constexpr double kBlasCall = 5.0e-6;  // host time of a cuBLAS call
inline constexpr double kNcclCall = 7.0e-6;  // of an NCCL call
inline constexpr double kComputeUnderCopies = 1.12, kCopiesUnderCompute = 1.25;
inline constexpr double kMostMhz = 1980, kHotClock = 0.83;

inline constexpr double kHostSync = kCopy + kWake + kSubmit;
inline constexpr double kD2hCopy = kCopyCall + kSubmit + kCopy + kWake;

inline double memory_seconds(double misses, double hits = 0) {
  return kFloor + misses / kHbm + hits / kL2Rate;
}

// The matrix units: fp8 sums are fast with fewer bits; MXFP8 has block scales; CUTLASS's bf16 kernel is not
// cuBLAS's.
enum class Units { kBf16, kFp8, kFp8Fast, kMxFp8, kCutlass };

// A product of so many FLOPs that reads and writes so many bytes; `clock` is relative to the most.
inline double product_seconds(double flops, Units units, double misses, double hits = 0, double clock = 1) {
  const double rate = units == Units::kBf16      ? 700e12
                      : units == Units::kCutlass ? 650e12
                      : units == Units::kFp8     ? 1000e12
                      : units == Units::kFp8Fast ? 1250e12
                                                 : 1150e12;
  return 3.5e-6 + std::max(flops / (rate * clock), misses / kHbm + hits / kL2Rate);
}

enum class Collective { kAllGather, kReduceScatter, kAllReduce, kExchange };

// `bytes`: the whole buffer of nccl-tests; of an exchange what the busiest rank sends or receives to and from
// others of its node, and of other nodes.
inline double collective_seconds(Collective op, int nodes, int ranks, double bytes, double between = 0) {
  constexpr double kNvlink = 360e9, kNic = 45e9;  // bytes/s of a GPU
  const double n = ranks, per_node = n / nodes;
  const double start = nodes > 1 ? 22e-6 + 1.2e-6 * n : 9e-6 + 0.5e-6 * n;
  if (op == Collective::kExchange) return start + std::max(bytes / kNvlink, between / kNic);
  const double passes = op == Collective::kAllReduce ? 2 : 1;
  const double moved = passes * (n - 1) / n * bytes;
  return start + (nodes > 1 ? moved / (kNic * per_node) : moved / kNvlink);
}

}  // namespace moesim::virtual_gpu
