#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "device.h"
#include "layer/arithmetic.h"

namespace moesim::bench {
namespace {

template <class T>
__global__ void fill_normal(T* data, std::size_t count, unsigned seed) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    data[i] = T(normal_of((static_cast<unsigned long long>(seed) << 40) + i));
}

}  // namespace

std::size_t bytes_of(Element type) { return type == Element::kFp8 ? 1 : type == Element::kBf16 ? 2 : 4; }

Buffer normal(Element type, std::size_t count, unsigned seed) {
  Buffer buffer(count * bytes_of(type));
  switch (type) {
    case Element::kBf16:
      fill_normal<<<1024, 256>>>(buffer.as<__nv_bfloat16>(), count, seed);
      break;
    case Element::kFp8:
      fill_normal<<<1024, 256>>>(buffer.as<__nv_fp8_e4m3>(), count, seed);
      break;
    case Element::kFloat:
      fill_normal<<<1024, 256>>>(buffer.as<float>(), count, seed);
      break;
  }
  require(cudaGetLastError(), "normal numbers");
  require(cudaDeviceSynchronize(), "normal numbers");
  return buffer;
}

std::vector<float> values(const void* data, Element type, std::size_t first, std::size_t stride,
                          std::size_t count) {
  const std::size_t size = bytes_of(type);
  std::vector<unsigned char> raw(count * size);
  require(cudaMemcpy2D(raw.data(), size, static_cast<const unsigned char*>(data) + first * size,
                       stride * size, size, count, cudaMemcpyDeviceToHost),
          "values");
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const void* at = raw.data() + i * size;
    if (type == Element::kBf16)
      result[i] = __bfloat162float(*static_cast<const __nv_bfloat16*>(at));
    else if (type == Element::kFp8)
      result[i] = static_cast<float>(*static_cast<const __nv_fp8_e4m3*>(at));
    else
      result[i] = *static_cast<const float*>(at);
  }
  return result;
}

void require(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) fail(what, ncclGetErrorString(status));
}

std::size_t rotation(std::size_t bytes) {
  int device = 0, l2 = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device), "L2 size");
  return std::clamp<std::size_t>(2 * static_cast<std::size_t>(l2) / std::max<std::size_t>(bytes, 1) + 1, 2,
                                 64);
}

double gpu_seconds(cudaStream_t stream, int calls, const std::function<void(int)>& work) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  require(cudaEventRecord(begin, stream), "cudaEventRecord");
  for (int i = 0; i < calls; ++i) work(i);
  require(cudaEventRecord(end, stream), "cudaEventRecord");
  require(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds * 1e-3 / calls;
}

void run_timed(benchmark::State& state, cudaStream_t stream, int calls,
               const std::function<void(int)>& work) {
  gpu_seconds(stream, calls, work);  // warm-up
  while (state.KeepRunning()) state.SetIterationTime(gpu_seconds(stream, calls, work));
  const Condition now = condition();
  if (now.sm_mhz <= 0) return;
  state.counters["sm_MHz"] = now.sm_mhz;
  state.counters["most_sm_MHz"] = now.most_sm_mhz;
  state.counters["memory_MHz"] = now.memory_mhz;
  state.counters["power_W"] = now.watts;
  state.counters["temperature_C"] = now.celsius;
}

void heat(double seconds) {
  constexpr int kSize = 4096;
  const Buffer a = normal(Element::kBf16, kSize * kSize, 1), b = normal(Element::kBf16, kSize * kSize, 2);
  Buffer c(a.bytes());
  cublasHandle_t handle;
  require(cublasCreate(&handle), "cublasCreate");
  const float one = 1, zero = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    for (int i = 0; i < 20; ++i)
      require(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.as<void>(),
                           CUDA_R_16BF, kSize, b.as<void>(), CUDA_R_16BF, kSize, &zero, c.as<void>(),
                           CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "heating product");
    require(cudaDeviceSynchronize(), "heating");
  }
  cublasDestroy(handle);
}

std::string canonical_gpu(const std::string& name) {
  static constexpr const char* kNames[][2] = {{"GB200", "GB200"},
                                              {"GB300", "GB300"},
                                              {"GH200", "GH200"},
                                              {"H200", "H200-SXM5-141GB"},
                                              {"H100", "H100-SXM5-80GB"},
                                              {"H800", "H800-SXM5-80GB"},
                                              {"A100-SXM4-40GB", "A100-SXM4-40GB"},
                                              {"A100", "A100-SXM4-80GB"},
                                              {"A800", "A800-SXM4-80GB"},
                                              {"B200", "B200-SXM6-180GB"},
                                              {"B300", "B300-SXM6"}};
  for (const auto& entry : kNames)
    if (name.find(entry[0]) != std::string::npos) return entry[1];
  return name;
}

std::string machine_state() {
  std::FILE* pipe = popen(
      "nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,driver_version "
      "--format=csv,noheader 2>/dev/null",
      "r");
  if (!pipe) return "unknown";
  std::string text;
  char line[256];
  while (std::fgets(line, sizeof line, pipe)) text += line;
  pclose(pipe);
  std::replace(text.begin(), text.end(), '\n', ';');
  return text.empty() ? "unknown" : text;
}

void add_case(std::vector<Case>& cases, const std::string& name, double seconds,
              const std::function<void(benchmark::State&)>& run) {
  cases.push_back({name, seconds});
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.2);
}

}  // namespace moesim::bench
