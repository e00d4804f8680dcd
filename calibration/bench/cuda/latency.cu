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

// A copy of a few bytes to the host, with nothing to wait for.
void d2h_copy(benchmark::State& state) {
  Buffer value(4);
  int host = 0;
  while (state.KeepRunning()) {
    require(cudaDeviceSynchronize(), "sync");
    const auto start = Clock::now();
    require(cudaMemcpy(&host, value.as<void>(), sizeof host, cudaMemcpyDeviceToHost), "copy to host");
    state.SetIterationTime(seconds_since(start));
  }
}

// What NCCL takes for nothing: one rank, from launch to end.
void nccl_single_rank(benchmark::State& state) {
  ncclUniqueId id;
  ncclComm_t comm;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  require(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  cudaStream_t stream;
  require(cudaStreamCreate(&stream), "cudaStreamCreate");
  Buffer in(4096), out(4096);
  run_timed(state, stream, 50, [&](int) {
    require(ncclAllReduce(in.as<void>(), out.as<void>(), 1024, ncclFloat, ncclSum, comm, stream),
            "ncclAllReduce");
  });
  ncclCommDestroy(comm);
  cudaStreamDestroy(stream);
}

// Holds an SM for a while.
__global__ void hold(long long nanoseconds) {
  long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}

enum class Beside { kNothing, kCopies, kKernel };

// Time of a product alone, while another stream copies memory all the time, or while a kernel holds `sms`
// SMs.
void product(benchmark::State& state, Beside beside, int sms) {
  constexpr int kSize = 4096, kCalls = 20;
  const std::size_t count = static_cast<std::size_t>(kSize) * kSize;
  const Buffer a = normal(Element::kBf16, count, 1), b = normal(Element::kBf16, count, 2);
  Buffer c(a.bytes()), from(1u << 30), to(1u << 30);
  cublasHandle_t handle;
  cudaStream_t compute, other;
  require(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cublasCreate(&handle), "cublasCreate");
  require(cublasSetStream(handle, compute), "cublasSetStream");
  int shared = 0;
  require(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "shared memory");
  require(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");
  const float one = 1, zero = 0;
  const auto call = [&](int) {
    if (beside == Beside::kCopies)
      require(cudaMemcpyAsync(to.as<void>(), from.as<void>(), from.bytes(), cudaMemcpyDeviceToDevice, other),
              "copy");
    require(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.as<void>(),
                         CUDA_R_16BF, kSize, b.as<void>(), CUDA_R_16BF, kSize, &zero, c.as<void>(),
                         CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "product");
  };
  if (beside != Beside::kKernel) {
    run_timed(state, compute, kCalls, call);
  } else {
    const double alone = gpu_seconds(compute, kCalls, call);
    while (state.KeepRunning()) {
      // Longer than the products can take beside it, and never without an end.
      const double held = 3 * alone * kCalls + 1e-3;
      hold<<<sms, 1, static_cast<std::size_t>(shared), other>>>(static_cast<long long>(held * 1e9));
      require(cudaGetLastError(), "hold");
      state.SetIterationTime(gpu_seconds(compute, kCalls, call));
      require(cudaDeviceSynchronize(), "sync");
    }
  }
  require(cudaDeviceSynchronize(), "sync");
  cublasDestroy(handle);
  cudaStreamDestroy(other);
  cudaStreamDestroy(compute);
}

}  // namespace

void register_latencies(std::vector<Case>& cases) {
  add_case(cases, "latency/launch", 0.5, launch);
  add_case(cases, "latency/host_sync", 0.5, host_sync);
  add_case(cases, "latency/smallest_kernel", 0.5, smallest_kernel);
  add_case(cases, "latency/d2h_copy", 0.5, d2h_copy);
  add_case(cases, "latency/nccl_single_rank", 1.0, nccl_single_rank);
  add_case(cases, "overlap/product_alone", 0.5, [](benchmark::State& s) { product(s, Beside::kNothing, 0); });
  add_case(cases, "overlap/product_beside_copies", 0.5,
           [](benchmark::State& s) { product(s, Beside::kCopies, 0); });
  for (const int sms : {8, 20, 32, 64})
    add_case(cases, "overlap/product_beside_kernel/sms:" + std::to_string(sms), 0.8,
             [sms](benchmark::State& s) { product(s, Beside::kKernel, sms); });
}

}  // namespace moesim::bench
