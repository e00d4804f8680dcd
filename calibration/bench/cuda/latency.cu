// Launch and host-sync latency, and how much a matrix product slows down beside a stream of copies.
#include <chrono>
#include <cmath>

#include "device.h"

namespace moesim::bench {
namespace {

__global__ void nothing() {}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Host time of one launch while the queue is not full.
void launch(benchmark::State& state) {
  constexpr int kLaunches = 200;
  while (state.KeepRunning()) {
    require(cudaDeviceSynchronize(), "sync");
    const auto start = Clock::now();
    for (int i = 0; i < kLaunches; ++i) nothing<<<1, 1>>>();
    state.SetIterationTime(seconds_since(start) / kLaunches);
  }
  require(cudaDeviceSynchronize(), "sync");
}

// From the end of a kernel until the host has a value of it and a next kernel is launched.
void host_sync(benchmark::State& state) {
  Buffer value(4);
  int host = 0;
  while (state.KeepRunning()) {
    require(cudaDeviceSynchronize(), "sync");
    const auto start = Clock::now();
    nothing<<<1, 1>>>();
    require(cudaMemcpy(&host, value.as<void>(), sizeof host, cudaMemcpyDeviceToHost), "copy to host");
    nothing<<<1, 1>>>();
    state.SetIterationTime(seconds_since(start));
  }
}

void smallest_kernel(benchmark::State& state) {
  cudaStream_t stream;
  require(cudaStreamCreate(&stream), "cudaStreamCreate");
  run_timed(state, stream, 500, [stream](int) { nothing<<<1, 1, 0, stream>>>(); });
  cudaStreamDestroy(stream);
}

// Time of a product alone, or while another stream copies memory all the time.
void product(benchmark::State& state, bool beside_copies) {
  constexpr int kSize = 4096, kCalls = 20;
  Buffer a(static_cast<std::size_t>(kSize) * kSize * 4), b(a.bytes()), c(a.bytes()), from(1u << 30),
      to(1u << 30);
  cublasHandle_t handle;
  cudaStream_t compute, copies;
  require(cudaStreamCreate(&compute), "cudaStreamCreate");
  require(cudaStreamCreate(&copies), "cudaStreamCreate");
  require(cublasCreate(&handle), "cublasCreate");
  require(cublasSetStream(handle, compute), "cublasSetStream");
  require(cudaMemset(a.as<void>(), 0, a.bytes()), "cudaMemset");
  require(cudaMemset(b.as<void>(), 0, b.bytes()), "cudaMemset");
  const float one = 1, zero = 0;
  const auto call = [&](int) {
    if (beside_copies)
      require(cudaMemcpyAsync(to.as<void>(), from.as<void>(), from.bytes(), cudaMemcpyDeviceToDevice, copies),
              "copy");
    require(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.as<void>(),
                         CUDA_R_32F, kSize, b.as<void>(), CUDA_R_32F, kSize, &zero, c.as<void>(), CUDA_R_32F,
                         kSize, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT),
            "product");
  };
  run_timed(state, compute, kCalls, call);
  require(cudaDeviceSynchronize(), "sync");
  cublasDestroy(handle);
  cudaStreamDestroy(copies);
  cudaStreamDestroy(compute);
}

}  // namespace

void register_latencies(std::vector<Case>& cases) {
  add_case(cases, "latency/launch", 0.5, launch);
  add_case(cases, "latency/host_sync", 0.5, host_sync);
  add_case(cases, "latency/smallest_kernel", 0.5, smallest_kernel);
  add_case(cases, "overlap/product_alone", 0.5, [](benchmark::State& s) { product(s, false); });
  add_case(cases, "overlap/product_beside_copies", 0.5, [](benchmark::State& s) { product(s, true); });
}

}  // namespace moesim::bench
