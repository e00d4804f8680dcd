// fp8 products by cuBLASLt with float sums.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>

#include "gpu.h"

namespace moesim::bench {

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
