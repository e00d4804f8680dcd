// Grouped bf16 products by CUTLASS, in one launch: kernels that frameworks use where cuBLAS has no grouped
// call. Part of the build where CUTLASS's headers were found (CMakeLists.txt).
#pragma once

#include <memory>
#include <vector>

#include "products.h"

namespace moesim::bench {

// Products of one pass, whose operands lie alike; sizes and pointers are copied to the GPU once.
class CutlassGrouped {
 public:
  CutlassGrouped() = default;
  virtual ~CutlassGrouped() = default;
  CutlassGrouped(const CutlassGrouped&) = delete;
  CutlassGrouped& operator=(const CutlassGrouped&) = delete;
  virtual void run(cudaStream_t stream) = 0;
};

// Kernels of one generation: Ampere's and Ada's matrix instructions, or Hopper's with TMA and warp groups.
std::unique_ptr<CutlassGrouped> cutlass_sm80(const std::vector<Product>& products);
std::unique_ptr<CutlassGrouped> cutlass_sm90(const std::vector<Product>& products);

#ifdef MOESIM_WITH_CUTLASS
inline constexpr bool kHasCutlass = true;
#else
inline constexpr bool kHasCutlass = false;
#endif

// Returns the products for a GPU of this major compute capability; nullptr where there are no kernels.
inline std::unique_ptr<CutlassGrouped> cutlass_grouped(const std::vector<Product>& products, int major) {
  if constexpr (kHasCutlass) {
    if (major == 8) return cutlass_sm80(products);
    if (major == 9) return cutlass_sm90(products);
  }
  return nullptr;
}

}  // namespace moesim::bench
