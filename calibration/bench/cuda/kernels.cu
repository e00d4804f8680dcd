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

// Every group of 128 elements has a scale of its own: 16 threads read 16 bytes each. Blocks are full.
constexpr int kScaled = 128, kGroups = 16;  // elements of a group, groups of a block
__global__ void convert(const __nv_bfloat16* in, __nv_fp8_e4m3* out, float* scales) {
  constexpr int kEach = 8, kThreads = kScaled / kEach;
  const std::size_t group = blockIdx.x * static_cast<std::size_t>(kGroups) + threadIdx.x / kThreads;
  const std::size_t at = group * kScaled + threadIdx.x % kThreads * kEach;
  const uint4 words = *reinterpret_cast<const uint4*>(in + at);
  const auto* values = reinterpret_cast<const __nv_bfloat16*>(&words);
  float most = 0;
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, fabsf(__bfloat162float(values[i])));
  for (int step = kThreads / 2; step > 0; step /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  constexpr float kLargestFp8 = 448;
  const float scale = fmaxf(most, 1e-12f) / kLargestFp8, inverse = 1 / scale;
  uint2 packed;
  auto* to = reinterpret_cast<__nv_fp8_e4m3*>(&packed);
  for (int i = 0; i < kEach; ++i) to[i] = __nv_fp8_e4m3(__bfloat162float(values[i]) * inverse);
  *reinterpret_cast<uint2*>(out + at) = packed;
  if (threadIdx.x % kThreads == 0) scales[group] = scale;
}

// ---- checks of all that was written ----

__device__ bool same(uint4 a, uint4 b) { return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w; }

// Row map[r] of `from` must be row r of `to`, or the other way round where it was scattered; padding is zero.
__global__ void check_rows(const uint4* from, const int* map, const uint4* to, int* wrong, int words,
                           bool scattered) {
  const int other = map[blockIdx.x], row = static_cast<int>(blockIdx.x);
  const std::size_t in = static_cast<std::size_t>(scattered ? row : other) * words,
                    out = static_cast<std::size_t>(scattered ? other : row) * words;
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    if (!same(to[out + i], other < 0 ? uint4{0, 0, 0, 0} : from[in + i])) atomicAdd(wrong, 1);
}

__global__ void check_sums(const float* from, const int* inverse, const float* to, int* wrong, int width,
                           int copies) {
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = 0;
    for (int c = 0; c < copies; ++c)
      sum += from[static_cast<std::size_t>(inverse[blockIdx.x * copies + c]) * width + i];
    const float got = to[static_cast<std::size_t>(blockIdx.x) * width + i];
    if (!(fabsf(got - sum) <= 1e-4f * (1 + fabsf(sum)))) atomicAdd(wrong, 1);
  }
}

__global__ void check_swiglu(const float2* in, const float* out, int* wrong, std::size_t count) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const float wanted = in[i].x / (1 + expf(-in[i].x)) * in[i].y;
    if (!(fabsf(out[i] - wanted) <= 1e-3f * (1 + fabsf(wanted)))) atomicAdd(wrong, 1);
  }
}

// A rounding of three bits, within half a step of what was scaled.
__global__ void check_fp8(const __nv_bfloat16* in, const __nv_fp8_e4m3* out, const float* scales,
                          int* wrong) {
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const float was = __bfloat162float(in[at]), scale = scales[blockIdx.x];
  if (!(fabsf(static_cast<float>(out[at]) * scale - was) <= 0.07f * fabsf(was) + scale)) atomicAdd(wrong, 1);
}

__global__ void check_sorted(const int* keys, const int* values, const int* key_of, int* wrong, int count) {
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x * blockDim.x))
    if (values[i] < 0 || values[i] >= count || key_of[values[i]] != keys[i] ||
        (i > 0 && keys[i] < keys[i - 1]))
      atomicAdd(wrong, 1);
}

__global__ void check_equal(const int* got, const int* wanted, int* wrong, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    if (got[i] != wanted[i]) atomicAdd(wrong, 1);
}

__global__ void check_bytes(const uint4* from, const uint4* to, int* wrong, std::size_t count) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    if (!same(from[i], to[i])) atomicAdd(wrong, 1);
}

cudaStream_t stream() {
  static const cudaStream_t one = [] {
    cudaStream_t made = nullptr;
    require(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    return made;
  }();
  return one;
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
  require(cudaDeviceSynchronize(), "upload");  // a small copy goes on when its call has returned
  return buffer;
}

// One call, the check of all that it wrote, and the timing.
void run_checked(benchmark::State& state, int launches, const std::function<void(int)>& call,
                 const std::function<void(int*)>& check) {
  call(0);
  Mismatches wrong;
  check(wrong.counter());
  if (wrong.count(stream()) > 0)
    state.SkipWithError("wrong result");
  else
    run_timed(state, stream(), launches, call);
}

// Inputs and outputs of a kernel side by side, as many as rotate.
struct Pairs {
  Pairs(Element type, std::size_t count, std::size_t out_bytes, Cache cache)
      : in_bytes(count * bytes_of(type)), both(in_bytes + out_bytes, cache) {
    for (std::size_t i = 0; i < both.all().size(); ++i)
      fill(both.all()[i].as<void>(), type, count, static_cast<unsigned>(i));
    require(cudaDeviceSynchronize(), "normal numbers");
  }
  template <class T>
  T* in(int turn) const {
    return both.at<T>(turn);
  }
  template <class T>
  T* out(int turn) const {
    return reinterpret_cast<T*>(both.at<char>(turn) + in_bytes);
  }
  static bool fit(benchmark::State& state, std::size_t bytes) {
    return has_room(&state, 3 * bytes + (std::size_t{256} << 20));
  }

  std::size_t in_bytes;
  Rotation both;
};

void copy_rows(benchmark::State& state, int rows, bool scattered, int padding, Cache cache) {
  const std::size_t bytes = static_cast<std::size_t>(rows) * kWords * 16;
  if (!Pairs::fit(state, 2 * bytes)) return;
  const Pairs pairs(Element::kBf16, bytes / 2, bytes, cache);
  std::vector<int> map = shuffled(rows);
  for (std::size_t i = map.size() - static_cast<std::size_t>(padding); i < map.size(); ++i) map[i] = -1;
  const auto device_map = upload(map);
  run_checked(
      state, 1,
      [&](int turn) {
        launch(scattered ? scatter : gather, static_cast<std::size_t>(rows), 256, 0, stream(),
               pairs.in<uint4>(turn), device_map->as<int>(), pairs.out<uint4>(turn), kWords);
      },
      [&](int* wrong) {
        launch(check_rows, static_cast<std::size_t>(rows), 256, 0, stream(), pairs.in<uint4>(0),
               device_map->as<int>(), pairs.out<uint4>(0), wrong, kWords, scattered);
      });
}

void add_rows(benchmark::State& state, int tokens, bool deterministic) {
  constexpr int kCopies = 2, kFloats = kWidth / 2;
  const int rows = tokens * kCopies;
  std::vector<int> map = shuffled(rows), inverse(map.size());
  for (int r = 0; r < rows; ++r) {
    inverse[static_cast<std::size_t>(map[static_cast<std::size_t>(r)])] = r;
    map[static_cast<std::size_t>(r)] /= kCopies;
  }
  const auto device_map = upload(map), device_inverse = upload(inverse);
  const std::size_t count = static_cast<std::size_t>(rows) * kFloats,
                    sums = static_cast<std::size_t>(tokens) * kFloats * sizeof(float);
  if (!Pairs::fit(state, count * sizeof(float) + sums)) return;
  const Pairs pairs(Element::kFloat, count, sums, Cache::kCold);
  run_checked(
      state, deterministic ? 1 : 2,
      [&](int turn) {
        float* to = pairs.out<float>(turn);
        if (deterministic) {
          launch(combine, static_cast<std::size_t>(tokens), 256, 0, stream(), pairs.in<float>(turn),
                 device_inverse->as<int>(), to, kFloats, kCopies);
          return;
        }
        require(cudaMemsetAsync(to, 0, sums, stream()), "cudaMemset");
        launch(scatter_add, static_cast<std::size_t>(rows), 256, 0, stream(), pairs.in<float>(turn),
               device_map->as<int>(), to, kFloats);
      },
      [&](int* wrong) {
        launch(check_sums, static_cast<std::size_t>(tokens), 256, 0, stream(), pairs.in<float>(0),
               device_inverse->as<int>(), pairs.out<float>(0), wrong, kFloats, kCopies);
      });
}

// Inputs of sorts and histograms stay in the L2, where a layer finds them.
void sort_keys(benchmark::State& state, int count, int bits) {
  std::vector<int> keys = shuffled(count);
  for (int& key : keys) key &= (1 << bits) - 1;
  const std::vector<int> order = shuffled(count);
  auto in = upload(keys), values_in = upload(order);
  Buffer out(in->bytes()), values_out(in->bytes());
  std::size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, in->as<int>(), out.as<int>(), values_in->as<int>(),
                                  values_out.as<int>(), count, 0, bits);
  Buffer scratch(bytes);
  // Values are a permutation, so the key that came along with one is known by it.
  std::vector<int> key_of(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) key_of[static_cast<std::size_t>(order[i])] = keys[i];
  const auto device_key_of = upload(key_of);
  run_checked(
      state, 1,
      [&](int) {
        require(cub::DeviceRadixSort::SortPairs(scratch.as<void>(), bytes, in->as<int>(), out.as<int>(),
                                                values_in->as<int>(), values_out.as<int>(), count, 0, bits,
                                                stream()),
                "sort");
      },
      [&](int* wrong) {
        launch(check_sorted, 256, 256, 0, stream(), out.as<int>(), values_out.as<int>(),
               device_key_of->as<int>(), wrong, count);
      });
}

void histogram(benchmark::State& state, int count) {
  constexpr int kBins = 256;
  std::vector<int> keys = shuffled(count), wanted(kBins, 0);
  for (int& key : keys) {
    key %= kBins;
    ++wanted[static_cast<std::size_t>(key)];
  }
  auto in = upload(keys);
  Buffer bins(kBins * sizeof(int));
  std::size_t bytes = 0;
  cub::DeviceHistogram::HistogramEven(nullptr, bytes, in->as<int>(), bins.as<int>(), kBins + 1, 0, kBins,
                                      count);
  Buffer scratch(bytes);
  const auto device_wanted = upload(wanted);
  run_checked(
      state, 1,
      [&](int) {
        require(cub::DeviceHistogram::HistogramEven(scratch.as<void>(), bytes, in->as<int>(), bins.as<int>(),
                                                    kBins + 1, 0, kBins, count, stream()),
                "histogram");
      },
      [&](int* wrong) {
        launch(check_equal, 1, kBins, 0, stream(), bins.as<int>(), device_wanted->as<int>(), wrong, kBins);
      });
}

void hbm_copy(benchmark::State& state, std::size_t bytes, Cache cache) {
  const std::size_t half = bytes / 2;
  if (!Pairs::fit(state, bytes)) return;
  const Pairs pairs(Element::kFloat, half / sizeof(float), half, cache);
  run_checked(
      state, 1,
      [&](int turn) {
        require(cudaMemcpyAsync(pairs.out<void>(turn), pairs.in<void>(turn), half, cudaMemcpyDeviceToDevice,
                                stream()),
                "copy");
      },
      [&](int* wrong) {
        launch(check_bytes, 1024, 256, 0, stream(), pairs.in<uint4>(0), pairs.out<uint4>(0), wrong,
               half / sizeof(uint4));
      });
}

void activation(benchmark::State& state, std::size_t count) {
  if (!Pairs::fit(state, count * 12)) return;
  const Pairs pairs(Element::kFloat, 2 * count, count * sizeof(float), Cache::kCold);
  run_checked(
      state, 1,
      [&](int turn) {
        launch(swiglu, 4096, 256, 0, stream(), pairs.in<float2>(turn), pairs.out<float>(turn), count);
      },
      [&](int* wrong) {
        launch(check_swiglu, 4096, 256, 0, stream(), pairs.in<float2>(0), pairs.out<float>(0), wrong, count);
      });
}

// Rows to fp8 with a scale for every 128 elements, as block-scaled products want them.
void to_fp8(benchmark::State& state, std::size_t count) {
  const std::size_t blocks = count / kScaled;
  if (!Pairs::fit(state, count * 4)) return;
  const Pairs pairs(Element::kBf16, count, count + blocks * sizeof(float), Cache::kCold);
  const auto scales = [&](int turn) { return reinterpret_cast<float*>(pairs.out<char>(turn) + count); };
  run_checked(
      state, 1,
      [&](int turn) {
        launch(convert, blocks / kGroups, kScaled / 8 * kGroups, 0, stream(), pairs.in<__nv_bfloat16>(turn),
               pairs.out<__nv_fp8_e4m3>(turn), scales(turn));
      },
      [&](int* wrong) {
        launch(check_fp8, blocks, kScaled, 0, stream(), pairs.in<__nv_bfloat16>(0),
               pairs.out<__nv_fp8_e4m3>(0), scales(0), wrong);
      });
}

}  // namespace

void register_kernels(std::vector<Case>& cases) {
  const auto name = [](const char* kind, std::size_t bytes) {
    return std::string("kernel/class:") + kind + "/bytes:" + std::to_string(bytes) + "/launches:1";
  };
  for (const int rows : {512, 2048, 8192, 32768}) {
    if (limits().brief && rows != 2048 && rows != 32768) continue;
    const std::size_t row = static_cast<std::size_t>(kWords) * 16;
    const std::size_t n = static_cast<std::size_t>(rows);
    add_case(cases, name("gather_rows", n * (2 * row + 4)), 0.3,
             [rows](benchmark::State& s) { copy_rows(s, rows, false, 0, Cache::kCold); });
    add_case(cases, name("scatter_rows", n * (2 * row + 4)), 0.3,
             [rows](benchmark::State& s) { copy_rows(s, rows, true, 0, Cache::kCold); });
    // Padding: an eighth of the rows is written without being read.
    add_case(cases, name("gather_rows", n * 2 * row - n / 8 * row + n * 4) + "/padded:8", 0.3,
             [rows](benchmark::State& s) { copy_rows(s, rows, false, rows / 8, Cache::kCold); });
    add_case(cases, name("scatter_add", n * (row + 4 + row + row) + n / 2 * row), 0.3,
             [rows](benchmark::State& s) { add_rows(s, rows / 2, false); });
    add_case(cases, name("scatter_add_deterministic", n * (row + 4) + n / 2 * row), 0.3,
             [rows](benchmark::State& s) { add_rows(s, rows / 2, true); });
    add_case(cases, name("elementwise", n * kWidth * 12), 0.3,
             [n](benchmark::State& s) { activation(s, n * kWidth); });
    add_case(cases, name("elementwise", n * kWidth * 3 + n * kWidth / kScaled * 4) + "/of:fp8", 0.3,
             [n](benchmark::State& s) { to_fp8(s, n * kWidth); });
  }
  for (const int count : {1 << 14, 1 << 18, 1 << 22}) {
    const std::size_t n = static_cast<std::size_t>(count);
    add_case(cases, name("sort", n * 16), 0.3, [count](benchmark::State& s) { sort_keys(s, count, 8); });
    add_case(cases, name("histogram", n * 4), 0.3, [count](benchmark::State& s) { histogram(s, count); });
  }
  for (std::size_t bytes = 1 << 16; bytes <= (std::size_t{1} << 32); bytes *= 16)
    add_case(cases, name("copy", bytes), 0.3,
             [bytes](benchmark::State& s) { hbm_copy(s, bytes, Cache::kCold); });
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{1} << 24})
    add_case(cases, name("copy", bytes) + "/cache:warm", 0.3,
             [bytes](benchmark::State& s) { hbm_copy(s, bytes, Cache::kWarm); });
  add_case(cases, name("gather_rows", std::size_t{512} * (2 * kWords * 16 + 4)) + "/cache:warm", 0.3,
           [](benchmark::State& s) { copy_rows(s, 512, false, 0, Cache::kWarm); });
}

}  // namespace moesim::bench
