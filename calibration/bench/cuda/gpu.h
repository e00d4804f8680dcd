// Shared parts of all GPU programs: errors that end the run with a message, owning buffers, name and state of
// the GPU.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

namespace moesim::bench {

// Print place and cause and exit with 1: a failed call invalidates every later number.
void require(cudaError_t status, const char* what);
void require(cublasStatus_t status, const char* what);
[[noreturn]] void fail(const char* what, const char* why);

// Device memory, freed by the destructor.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(Buffer&&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Launches a kernel through the runtime's typed call, which the tests' virtual GPU implements as well
// (tests/calibration/virtual_gpu).
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::size_t blocks, unsigned threads, std::size_t shared,
            cudaStream_t stream, Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  require(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "kernel");
}

// Clocks and power of the current GPU, identified by its PCI bus address, since NVML also counts GPUs that
// CUDA_VISIBLE_DEVICES hides. Zeros where the management library is missing.
struct Condition {
  double sm_mhz = 0, most_sm_mhz = 0, memory_mhz = 0, watts = 0, celsius = 0;
};
Condition condition();
std::string place_of_gpu();                // "0000:1B:00.0"
std::vector<unsigned> processes_on_gpu();  // that compute there, according to NVML

}  // namespace moesim::bench
