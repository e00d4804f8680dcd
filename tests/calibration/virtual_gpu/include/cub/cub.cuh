// The two algorithms of CUB that calibration/bench calls, on the virtual GPU.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "cuda_runtime.h"

namespace cub {

namespace detail {
// All memory is gone through so many times.
inline constexpr int kPasses = 4;
inline cudaError_t run(std::vector<moesim::virtual_gpu::Argument> memory, cudaStream_t stream,
                       const std::function<void()>& body) {
  for (auto& one : memory) one.times = kPasses;
  cudaLaunchConfig_t config;
  config.stream = stream;
  return moesim::virtual_gpu::run_kernel(config, memory, body);
}
}  // namespace detail

struct DeviceRadixSort {
  template <class Key, class Value>
  static cudaError_t SortPairs(void* scratch, std::size_t& bytes, const Key* keys, Key* sorted,
                               const Value* values, Value* order, int count, int = 0, int = sizeof(Key) * 8,
                               cudaStream_t stream = nullptr) {
    if (!scratch) {
      bytes = 1024;
      return cudaSuccess;
    }
    return detail::run({{keys, false}, {sorted, true}, {values, false}, {order, true}}, stream, [=] {
      std::vector<int> at(static_cast<std::size_t>(count));
      std::iota(at.begin(), at.end(), 0);
      std::stable_sort(at.begin(), at.end(), [&](int a, int b) { return keys[a] < keys[b]; });
      for (int i = 0; i < count; ++i) {
        sorted[i] = keys[at[static_cast<std::size_t>(i)]];
        order[i] = values[at[static_cast<std::size_t>(i)]];
      }
    });
  }
};

struct DeviceHistogram {
  template <class Sample, class Bin, class Level>
  static cudaError_t HistogramEven(void* scratch, std::size_t& bytes, const Sample* samples, Bin* bins,
                                   int levels, Level low, Level high, int count,
                                   cudaStream_t stream = nullptr) {
    if (!scratch) {
      bytes = 1024;
      return cudaSuccess;
    }
    return detail::run({{samples, false}, {bins, true}}, stream, [=] {
      std::fill(bins, bins + levels - 1, Bin{});
      for (int i = 0; i < count; ++i)
        if (samples[i] >= low && samples[i] < high) ++bins[(samples[i] - low) * (levels - 1) / (high - low)];
    });
  }
};

}  // namespace cub
