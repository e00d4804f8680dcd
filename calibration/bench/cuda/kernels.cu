// Memory-bound kernels of MoE layers (docs/spec.md 1.5). Bytes in the names are read + written, as
// counted there.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

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

// One block for each group of elements with a scale of its own.
constexpr int kScaled = 128;
__global__ void convert(const __nv_bfloat16* in, __nv_fp8_e4m3* out, float* scales) {
  __shared__ float largest[kScaled / 32];
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kScaled + threadIdx.x;
  const float value = __bfloat162float(in[at]);
  float most = fabsf(value);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
  __syncthreads();
  for (const float other : largest) most = fmaxf(most, other);
  constexpr float kLargestFp8 = 448;
  const float scale = fmaxf(most, 1e-12f) / kLargestFp8;
  out[at] = __nv_fp8_e4m3(value / scale);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
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

// Random rows whose first word is their number.
std::unique_ptr<Buffer> numbered_rows(int rows) {
  auto buffer = std::make_unique<Buffer>(normal(Element::kBf16, static_cast<std::size_t>(rows) * kWidth, 5));
  std::vector<int> numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  require(cudaMemcpy2D(buffer->as<void>(), kWords * 16, numbers.data(), sizeof(int), sizeof(int),
                       static_cast<std::size_t>(rows), cudaMemcpyHostToDevice),
          "numbers");
  return buffer;
}

void copy_rows(benchmark::State& state, int rows, bool scattered, int padding) {
  const std::size_t copies = rotation(static_cast<std::size_t>(rows) * kWords * 32);
  std::vector<std::unique_ptr<Buffer>> sources;
  std::vector<Buffer> targets;
  for (std::size_t i = 0; i < copies; ++i) {
    sources.push_back(numbered_rows(rows));
    targets.emplace_back(sources.back()->bytes());
  }
  std::vector<int> map = shuffled(rows);
  for (std::size_t i = map.size() - static_cast<std::size_t>(padding); i < map.size(); ++i) map[i] = -1;
  auto device_map = upload(map);
  const auto call = [&](int turn) {
    const std::size_t i = static_cast<std::size_t>(turn) % copies;
    if (scattered)
      scatter<<<rows, 256>>>(sources[i]->as<uint4>(), device_map->as<int>(), targets[i].as<uint4>(), kWords);
    else
      gather<<<rows, 256>>>(sources[i]->as<uint4>(), device_map->as<int>(), targets[i].as<uint4>(), kWords);
  };
  call(0);
  require(cudaDeviceSynchronize(), "row kernel");
  const auto result = download<int>(targets[0], static_cast<std::size_t>(rows) * kWords * 4);
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
  const std::size_t copies = rotation(static_cast<std::size_t>(rows) * kFloats * 6);
  std::vector<Buffer> from, to;
  for (std::size_t i = 0; i < copies; ++i) {
    from.push_back(
        normal(Element::kFloat, static_cast<std::size_t>(rows) * kFloats, static_cast<unsigned>(i)));
    to.emplace_back(static_cast<std::size_t>(tokens) * kFloats * sizeof(float));
  }
  const auto call = [&](int turn) {
    const std::size_t i = static_cast<std::size_t>(turn) % copies;
    if (deterministic) {
      combine<<<tokens, 256>>>(from[i].as<float>(), device_inverse->as<int>(), to[i].as<float>(), kFloats,
                               kCopies);
    } else {
      require(cudaMemsetAsync(to[i].as<void>(), 0, to[i].bytes()), "cudaMemset");
      scatter_add<<<rows, 256>>>(from[i].as<float>(), device_map->as<int>(), to[i].as<float>(), kFloats);
    }
  };
  call(0);
  require(cudaDeviceSynchronize(), "add kernel");
  // The first element of some tokens, from the rows that were added.
  for (const int token : {0, tokens / 2, tokens - 1}) {
    float sum = 0;
    for (int c = 0; c < kCopies; ++c)
      sum += values(from[0].as<void>(), Element::kFloat,
                    static_cast<std::size_t>(
                        inverse[static_cast<std::size_t>(token) * kCopies + static_cast<std::size_t>(c)]) *
                        kFloats,
                    1, 1)[0];
    const float got =
        values(to[0].as<void>(), Element::kFloat, static_cast<std::size_t>(token) * kFloats, 1, 1)[0];
    if (std::abs(got - sum) > 1e-4f * (1 + std::abs(sum))) {
      state.SkipWithError("wrong result");
      return;
    }
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
  const std::size_t copies = rotation(count * 12);
  std::vector<Buffer> in, out;
  for (std::size_t i = 0; i < copies; ++i) {
    in.push_back(normal(Element::kFloat, 2 * count, static_cast<unsigned>(i)));
    out.emplace_back(count * sizeof(float));
  }
  const auto call = [&](int turn) {
    const std::size_t i = static_cast<std::size_t>(turn) % copies;
    swiglu<<<4096, 256>>>(in[i].as<float2>(), out[i].as<float>(), count);
  };
  call(0);
  require(cudaDeviceSynchronize(), "activation");
  const auto inputs = values(in[0].as<void>(), Element::kFloat, 0, 1, 2);
  const float wanted = inputs[0] / (1 + std::exp(-inputs[0])) * inputs[1];
  if (std::abs(download<float>(out[0], 1).front() - wanted) > 1e-3f * (1 + std::abs(wanted))) {
    state.SkipWithError("wrong result");
    return;
  }
  run_timed(state, nullptr, kCalls, call);
}

// Rows to fp8 with a scale for every 128 elements, as block-scaled products want them.
void to_fp8(benchmark::State& state, std::size_t count) {
  const std::size_t copies = rotation(count * 3), blocks = count / kScaled;
  std::vector<Buffer> in, out, scales;
  for (std::size_t i = 0; i < copies; ++i) {
    in.push_back(normal(Element::kBf16, count, static_cast<unsigned>(i)));
    out.emplace_back(count);
    scales.emplace_back(blocks * sizeof(float));
  }
  const auto call = [&](int turn) {
    const std::size_t i = static_cast<std::size_t>(turn) % copies;
    convert<<<static_cast<unsigned>(blocks), kScaled>>>(in[i].as<__nv_bfloat16>(), out[i].as<__nv_fp8_e4m3>(),
                                                        scales[i].as<float>());
  };
  call(0);
  require(cudaDeviceSynchronize(), "conversion");
  const auto was = values(in[0].as<void>(), Element::kBf16, 0, 1, kScaled);
  const auto is = values(out[0].as<void>(), Element::kFp8, 0, 1, kScaled);
  const float scale = values(scales[0].as<void>(), Element::kFloat, 0, 1, 1)[0];
  for (int i = 0; i < kScaled; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    if (std::abs(is[at] * scale - was[at]) > 0.07f * std::abs(was[at]) + scale) {
      state.SkipWithError("wrong result");
      return;
    }
  }
  run_timed(state, nullptr, kCalls, call);
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
    add_case(cases, name("elementwise", n * kWidth * 3 + n * kWidth / kScaled * 4) + "/of:fp8", 0.5,
             [n](benchmark::State& s) { to_fp8(s, n * kWidth); });
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
