#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "device.h"

namespace moesim::bench {
namespace {

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "moesim-bench-cuda: %s: %s\n", what, why);
  std::exit(1);
}

}  // namespace

void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(what, cudaGetErrorString(status));
}

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(what, cublasGetStatusString(status));
}

void require(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) fail(what, ncclGetErrorString(status));
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  require(cudaMalloc(&data_, std::max<std::size_t>(bytes, 256)), "cudaMalloc");
}

Buffer::~Buffer() {
  if (data_) cudaFree(data_);
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
}

void heat(double seconds) {
  constexpr int kSize = 4096;
  Buffer a(kSize * kSize * sizeof(float)), b(a.bytes()), c(a.bytes());
  cublasHandle_t handle;
  require(cublasCreate(&handle), "cublasCreate");
  const float one = 1, zero = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    for (int i = 0; i < 20; ++i)
      require(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.as<void>(),
                           CUDA_R_32F, kSize, b.as<void>(), CUDA_R_32F, kSize, &zero, c.as<void>(),
                           CUDA_R_32F, kSize, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT),
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
