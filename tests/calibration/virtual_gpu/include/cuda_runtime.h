// The calls of the CUDA runtime that calibration/bench makes, declared for the virtual GPU of the tests.
// Names and meanings are those of NVIDIA's public documentation of the runtime.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(threads)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint4 {
  unsigned x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct float2 {
  float x, y;
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28, CUDA_R_8F_UE8M0 = 30 };

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
#define CUDART_VERSION 13000

using cudaStream_t = struct VirtualStream*;
using cudaEvent_t = struct VirtualEvent*;

struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount, l2CacheSize;
  std::size_t totalGlobalMem;
};

const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaGetLastError();
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

// ---- the body of a kernel ----

extern dim3 threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads();

namespace moesim::virtual_gpu {

// Memory that a kernel is given; all of it is read or written, `times` times.
struct Argument {
  const void* memory;
  bool written;
  int times = 1;
};
cudaError_t run_kernel(const cudaLaunchConfig_t& config, const std::vector<Argument>& memory,
                       const std::function<void()>& body);
cudaError_t hold_stream(const cudaLaunchConfig_t& config, long long nanoseconds);
cudaError_t carry(const cudaLaunchConfig_t& config, const uint4* from, uint4* to, std::size_t words);
// The value of another thread of the block.
void exchange(void* value, std::size_t bytes, unsigned from);

template <class T>
void note(std::vector<Argument>& memory, const T& argument) {
  if constexpr (std::is_pointer_v<T>)
    memory.push_back({argument, !std::is_const_v<std::remove_pointer_t<T>>});
}

}  // namespace moesim::virtual_gpu

template <class T>
T __shfl_xor_sync(unsigned, T value, int step) {
  moesim::virtual_gpu::exchange(&value, sizeof value, threadIdx.x ^ static_cast<unsigned>(step));
  return value;
}
template <class T>
T atomicAdd(T* memory, T value) {
  const T before = *memory;
  *memory += value;
  return before;
}

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Actual&&... arguments) {
  if constexpr (std::is_same_v<void (*)(Expected...), void (*)(long long)>) {
    return moesim::virtual_gpu::hold_stream(*config, arguments...);
  } else if constexpr (std::is_same_v<void (*)(Expected...), void (*)(const uint4*, uint4*, std::size_t)>) {
    // The suite's copies by few blocks.
    return moesim::virtual_gpu::carry(*config, arguments...);
  } else {
    std::vector<moesim::virtual_gpu::Argument> memory;
    (moesim::virtual_gpu::note(memory, static_cast<Expected>(arguments)), ...);
    // The suite's scatter_add: of two rows for each target, each reads and writes it.
    if constexpr (std::is_same_v<void (*)(Expected...), void (*)(const float*, const int*, float*, int)>)
      memory.back().times = 4;
    return moesim::virtual_gpu::run_kernel(*config, memory,
                                           [&] { kernel(static_cast<Expected>(arguments)...); });
  }
}
