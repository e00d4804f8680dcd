// Memory-bound kernels of MoE layers (docs/spec.md 1.5). Bytes in the names are read + written, as
// counted there.
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <cub/cub.cuh>

#include "device.h"

namespace moesim::bench {
namespace {

constexpr int kCalls = 20;
constexpr int kWidth = 4096;             // elements of a row, bf16
constexpr int kWords = kWidth * 2 / 16;  // 16-byte words of a row

// One block per row; `map[row]` is where it comes from (or goes to). Rows < 0 are padding and are written as
// zero.
__global__ void gather(const uint4* from, const int* map, uint4* to, int words) {
  const int source = map[blockIdx.x];
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    to[static_cast<std::size_t>(blockIdx.x) * words + i] =
        source >= 0 ? from[static_cast<std::size_t>(source) * words + i] : uint4{0, 0, 0, 0};
}

__global__ void scatter(const uint4* from, const int* map, uint4* to, int words) {
  const int target = map[blockIdx.x];
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    to[static_cast<std::size_t>(target) * words + i] = from[static_cast<std::size_t>(blockIdx.x) * words + i];
}

__global__ void scatter_add(const float* from, const int* map, float* to, int width) {
  const int target = map[blockIdx.x];
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    atomicAdd(&to[static_cast<std::size_t>(target) * width + i],
              from[static_cast<std::size_t>(blockIdx.x) * width + i]);
}

// Sum of the `copies` rows of each token, found through the inverse map: no atomics, a fixed order.
__global__ void combine(const float* from, const int* inverse, float* to, int width, int copies) {
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = 0;
    for (int c = 0; c < copies; ++c)
      sum += from[static_cast<std::size_t>(inverse[blockIdx.x * copies + c]) * width + i];
    to[static_cast<std::size_t>(blockIdx.x) * width + i] = sum;
  }
}

__global__ void swiglu(const float2* in, float* out, std::size_t count) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const float2 v = in[i];
    out[i] = v.x / (1 + expf(-v.x)) * v.y;
  }
}

std::vector<int> shuffled(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  return order;
}

std::unique_ptr<Buffer> upload(const std::vector<int>& values) {
  auto buffer = std::make_unique<Buffer>(values.size() * sizeof(int));
  require(cudaMemcpy(buffer->as<void>(), values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice),
          "upload");
  return buffer;
}

template <class T>
std::vector<T> download(const Buffer& buffer, std::size_t count) {
  std::vector<T> values(count);
  require(cudaMemcpy(values.data(), buffer.as<void>(), count * sizeof(T), cudaMemcpyDeviceToHost),
          "download");
  return values;
}

// Rows whose first word is their number.
std::unique_ptr<Buffer> numbered_rows(int rows) {
  auto buffer = std::make_unique<Buffer>(static_cast<std::size_t>(rows) * kWords * 16);
  require(cudaMemset(buffer->as<void>(), 0, buffer->bytes()), "cudaMemset");
  std::vector<int> numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  require(cudaMemcpy2D(buffer->as<void>(), kWords * 16, numbers.data(), sizeof(int), sizeof(int),
                       static_cast<std::size_t>(rows), cudaMemcpyHostToDevice),
          "numbers");
  return buffer;
}

void copy_rows(benchmark::State& state, int rows, bool scattered, int padding) {
  auto from = numbered_rows(rows);
  std::vector<int> map = shuffled(rows);
  for (std::size_t i = map.size() - static_cast<std::size_t>(padding); i < map.size(); ++i) map[i] = -1;
  auto device_map = upload(map);
  Buffer to(from->bytes());
  const auto call = [&](int) {
    if (scattered)
      scatter<<<rows, 256>>>(from->as<uint4>(), device_map->as<int>(), to.as<uint4>(), kWords);
    else
      gather<<<rows, 256>>>(from->as<uint4>(), device_map->as<int>(), to.as<uint4>(), kWords);
  };
  call(0);
  require(cudaDeviceSynchronize(), "row kernel");
  const auto result = download<int>(to, static_cast<std::size_t>(rows) * kWords * 4);
  for (int r = 0; r < rows; ++r) {
    const int target = scattered ? map[static_cast<std::size_t>(r)] : r;
    const int wanted = scattered ? r : std::max(map[static_cast<std::size_t>(r)], 0);
    if (result[static_cast<std::size_t>(target) * kWords * 4] != wanted) {
      state.SkipWithError("wrong result");
      return;
    }
  }
  run_timed(state, nullptr, kCalls, call);
}

void add_rows(benchmark::State& state, int tokens, bool deterministic) {
  constexpr int kCopies = 2, kFloats = kWidth / 2;
  const int rows = tokens * kCopies;
  std::vector<int> map = shuffled(rows), inverse(map.size());
  for (int r = 0; r < rows; ++r) {
    inverse[static_cast<std::size_t>(map[static_cast<std::size_t>(r)])] = r;
    map[static_cast<std::size_t>(r)] /= kCopies;
  }
  auto device_map = upload(map), device_inverse = upload(inverse);
  const std::vector<float> ones(static_cast<std::size_t>(rows) * kFloats, 1.0f);
  Buffer from(ones.size() * sizeof(float)), to(static_cast<std::size_t>(tokens) * kFloats * sizeof(float));
  require(cudaMemcpy(from.as<void>(), ones.data(), from.bytes(), cudaMemcpyHostToDevice), "ones");
  const auto call = [&](int) {
    if (deterministic) {
      combine<<<tokens, 256>>>(from.as<float>(), device_inverse->as<int>(), to.as<float>(), kFloats, kCopies);
    } else {
      require(cudaMemsetAsync(to.as<void>(), 0, to.bytes()), "cudaMemset");
      scatter_add<<<rows, 256>>>(from.as<float>(), device_map->as<int>(), to.as<float>(), kFloats);
    }
  };
  call(0);
  require(cudaDeviceSynchronize(), "add kernel");
  for (const float value : download<float>(to, static_cast<std::size_t>(tokens) * kFloats))
    if (value != kCopies) {
      state.SkipWithError("wrong result");
      return;
    }
  run_timed(state, nullptr, kCalls, call);
}

void sort_keys(benchmark::State& state, int count, int bits) {
  std::vector<int> keys = shuffled(count);
  for (int& key : keys) key &= (1 << bits) - 1;
  auto in = upload(keys), values = upload(shuffled(count));
  Buffer out(in->bytes()), values_out(in->bytes());
  std::size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, in->as<int>(), out.as<int>(), values->as<int>(),
                                  values_out.as<int>(), count, 0, bits);
  Buffer scratch(bytes);
  const auto call = [&](int) {
    require(cub::DeviceRadixSort::SortPairs(scratch.as<void>(), bytes, in->as<int>(), out.as<int>(),
                                            values->as<int>(), values_out.as<int>(), count, 0, bits),
            "sort");
  };
  call(0);
  require(cudaDeviceSynchronize(), "sort");
  const auto sorted = download<int>(out, static_cast<std::size_t>(count));
  if (!std::is_sorted(sorted.begin(), sorted.end())) {
    state.SkipWithError("wrong result");
    return;
  }
  run_timed(state, nullptr, kCalls, call);
}

void histogram(benchmark::State& state, int count) {
  constexpr int kBins = 256;
  std::vector<int> keys = shuffled(count);
  for (int& key : keys) key %= kBins;
  auto in = upload(keys);
  Buffer bins(kBins * sizeof(int));
  std::size_t bytes = 0;
  cub::DeviceHistogram::HistogramEven(nullptr, bytes, in->as<int>(), bins.as<int>(), kBins + 1, 0, kBins,
                                      count);
  Buffer scratch(bytes);
  const auto call = [&](int) {
    require(cub::DeviceHistogram::HistogramEven(scratch.as<void>(), bytes, in->as<int>(), bins.as<int>(),
                                                kBins + 1, 0, kBins, count),
            "histogram");
  };
  call(0);
  require(cudaDeviceSynchronize(), "histogram");
  const auto counts = download<int>(bins, kBins);
  if (std::accumulate(counts.begin(), counts.end(), 0) != count) {
    state.SkipWithError("wrong result");
    return;
  }
  run_timed(state, nullptr, kCalls, call);
}

void hbm_copy(benchmark::State& state, std::size_t bytes) {
  Buffer from(bytes / 2), to(bytes / 2);
  require(cudaMemset(from.as<void>(), 7, from.bytes()), "cudaMemset");
  const auto call = [&](int) {
    require(cudaMemcpyAsync(to.as<void>(), from.as<void>(), from.bytes(), cudaMemcpyDeviceToDevice), "copy");
  };
  call(0);
  require(cudaDeviceSynchronize(), "copy");
  if (download<char>(to, 64).back() != 7) {
    state.SkipWithError("wrong result");
    return;
  }
  run_timed(state, nullptr, kCalls, call);
}

void activation(benchmark::State& state, std::size_t count) {
  Buffer in(count * sizeof(float2)), out(count * sizeof(float));
  require(cudaMemset(in.as<void>(), 0, in.bytes()), "cudaMemset");
  run_timed(state, nullptr, kCalls,
            [&](int) { swiglu<<<4096, 256>>>(in.as<float2>(), out.as<float>(), count); });
  if (download<float>(out, 1).front() != 0) state.SkipWithError("wrong result");
}

}  // namespace

void register_kernels(std::vector<Case>& cases) {
  const auto name = [](const char* kind, std::size_t bytes) {
    return std::string("kernel/class:") + kind + "/bytes:" + std::to_string(bytes) + "/launches:1";
  };
  for (const int rows : {512, 2048, 8192, 32768}) {
    const std::size_t row = static_cast<std::size_t>(kWords) * 16;
    const std::size_t n = static_cast<std::size_t>(rows);
    add_case(cases, name("gather_rows", n * (2 * row + 4)), 0.5,
             [rows](benchmark::State& s) { copy_rows(s, rows, false, 0); });
    add_case(cases, name("scatter_rows", n * (2 * row + 4)), 0.5,
             [rows](benchmark::State& s) { copy_rows(s, rows, true, 0); });
    // Padding: an eighth of the rows is written without being read.
    add_case(cases, name("gather_rows", n * 2 * row - n / 8 * row + n * 4) + "/padded:8", 0.5,
             [rows](benchmark::State& s) { copy_rows(s, rows, false, rows / 8); });
    add_case(cases, name("scatter_add", n * (row + 4 + row + row) + n / 2 * row), 0.5,
             [rows](benchmark::State& s) { add_rows(s, rows / 2, false); });
    add_case(cases, name("scatter_add_deterministic", n * (row + 4) + n / 2 * row), 0.5,
             [rows](benchmark::State& s) { add_rows(s, rows / 2, true); });
    add_case(cases, name("elementwise", n * kWidth * 12), 0.5,
             [n](benchmark::State& s) { activation(s, n * kWidth); });
  }
  for (const int count : {1 << 14, 1 << 18, 1 << 22}) {
    const std::size_t n = static_cast<std::size_t>(count);
    add_case(cases, name("sort", n * 16), 0.5, [count](benchmark::State& s) { sort_keys(s, count, 8); });
    add_case(cases, name("histogram", n * 4), 0.5, [count](benchmark::State& s) { histogram(s, count); });
  }
  for (std::size_t bytes = 1 << 16; bytes <= (std::size_t{1} << 32); bytes *= 16)
    add_case(cases, name("copy", bytes), 0.6, [bytes](benchmark::State& s) { hbm_copy(s, bytes); });
}

}  // namespace moesim::bench
