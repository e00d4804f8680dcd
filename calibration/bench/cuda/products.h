// Matrix products in cuBLAS terms, and bf16 ones by cuBLAS with float sums: one, or many of different sizes in one call.
#pragma once

#include <vector>

#include "gpu.h"

// Whether this cuBLAS has the grouped call; older versions use a loop.
#define kGroupedSince 120500

namespace moesim::bench {

inline constexpr bool kHasGrouped = CUBLAS_VERSION >= kGroupedSince;

// In column-major terms: C[rows, columns] = op(A)[rows, depth] op(B)[depth, columns]; op transposes where
// set.
struct Product {
  bool turn_a, turn_b;
  int rows, columns, depth;
  const void *a, *b;
  void* c;
  int lda, ldb, ldc;
};

enum class Pass { kForward, kDgrad, kWgrad };

// Rows x[m,k], weights w[k,n] and outputs y[m,n] of one expert, all row-major. Forward writes y, dgrad x,
// wgrad w.
inline Product product_of(Pass pass, int m, int n, int k, void* x, void* w, void* y) {
  switch (pass) {
    case Pass::kForward:
      return {false, false, n, m, k, w, x, y, n, k, n};
    case Pass::kDgrad:
      return {true, false, k, m, n, w, y, x, n, n, k};
    case Pass::kWgrad:
      break;
  }
  return {false, true, n, k, m, y, x, w, n, k, n};
}

cublasOperation_t turn(bool turned);

void multiply(cublasHandle_t handle, const Product& product);

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
