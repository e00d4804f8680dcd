// bf16 products by cuBLAS with float sums: one product, or many of different sizes in one call.
#pragma once

#include <vector>

#include "gpu.h"
#include "layer/product.h"

// Whether this cuBLAS has the grouped call; older versions use a loop.
#define kGroupedSince 120500

namespace moesim::bench {

inline constexpr bool kHasGrouped = CUBLAS_VERSION >= kGroupedSince;

cublasOperation_t turn(bool turned);

// Computes C in elements of `out`, CUDA_R_16BF or CUDA_R_32F; `add`: adds to C.
void multiply(cublasHandle_t handle, const Product& product, cudaDataType_t out, bool add);

// The arrays that the grouped call reads: sizes on the host, pointers on the device.
class GroupedCall {
 public:
  explicit GroupedCall(const std::vector<Product>& products);
  // The pointers to copy to the device.
  const void* pointers() const { return pointers_.data(); }
  std::size_t pointer_bytes() const { return pointers_.size() * sizeof(void*); }
  // Runs the call; `on_device`: the copied pointers.
  void run(cublasHandle_t handle, const void* on_device) const;

 private:
  std::vector<cublasOperation_t> op_a_, op_b_;
  std::vector<int> rows_, columns_, depths_, lda_, ldb_, ldc_, ones_;
  std::vector<float> alpha_, beta_;
  std::vector<const void*> pointers_;  // all A, all B, all C
};

}  // namespace moesim::bench
