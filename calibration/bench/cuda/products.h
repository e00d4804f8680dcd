// Matrix products in cuBLAS terms: bf16 ones by cuBLAS with float sums, one, or many of different sizes in one
// call; fp8 ones by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
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

// fp8 operands have one scale a tensor, or, MXFP8, a power of two for 32 elements along the depth.
enum class Scales { kTensor, kBlocks };
// The GPU's generation and this cuBLASLt (from 12.8 on) multiply MXFP8.
bool has_block_scales();

// One fp8 product as the matrix units read it: C[rows, columns] = A^T B in column-major terms, A and B contiguous
// along the depth, C in bf16. `fast`: sums with fewer bits, as frameworks take forward products.
class Fp8Product {
 public:
  Fp8Product(cublasLtHandle_t handle, int rows, int columns, int depth, bool fast, Scales scales);
  ~Fp8Product();
  Fp8Product(const Fp8Product&) = delete;
  Fp8Product& operator=(const Fp8Product&) = delete;
  bool known() const { return found_ > 0; }  // cuBLASLt has a kernel for it
  void run(const void* a, const void* b, void* c, cudaStream_t stream) const;
  // The bytes that it keeps on the GPU; the workspace is common to all.
  static std::size_t bytes(int rows, int columns, int depth, Scales scales);

 private:
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulHeuristicResult_t algorithm_{};
  int found_ = 0;
  std::unique_ptr<Buffer> scales_;
};

}  // namespace moesim::bench
