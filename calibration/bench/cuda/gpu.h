// What every program on a GPU shares: errors that end the run with a line, buffers that are given back, the
// GPU's state.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace moesim::bench {

// Print where and what, and exit 1: a failed call makes every later number worthless.
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

// What the GPU is at now; zeros where its management library is not there.
struct Condition {
  double sm_mhz = 0, most_sm_mhz = 0, memory_mhz = 0, watts = 0, celsius = 0;
};
Condition condition();

}  // namespace moesim::bench
