// bf16 products by cuBLAS, sums in float: one, or many of different sizes in one call.
#pragma once

#include <vector>

#include "gpu.h"
#include "layer/product.h"

// The version of cuBLAS whose header first has the grouped call; with an older one a loop takes its place.
#define kGroupedSince 120500

namespace moesim::bench {

inline constexpr bool kHasGrouped = CUBLAS_VERSION >= kGroupedSince;

cublasOperation_t turn(bool turned);

// C in elements of `out`, CUDA_R_16BF or CUDA_R_32F, added to what is there where `add` says so.
void multiply(cublasHandle_t handle, const Product& product, cudaDataType_t out, bool add);

// The arrays that the grouped call reads: sizes on the host, pointers on the device.
class GroupedCall {
 public:
  explicit GroupedCall(const std::vector<Product>& products);
  // To be copied to the device,
  const void* pointers() const { return pointers_.data(); }
  std::size_t pointer_bytes() const { return pointers_.size() * sizeof(void*); }
  // where the call finds them.
  void run(cublasHandle_t handle, const void* on_device) const;

 private:
  std::vector<cublasOperation_t> op_a_, op_b_;
  std::vector<int> rows_, columns_, depths_, lda_, ldb_, ldc_, ones_;
  std::vector<float> alpha_, beta_;
  std::vector<const void*> pointers_;  // all A, all B, all C
};

}  // namespace moesim::bench
