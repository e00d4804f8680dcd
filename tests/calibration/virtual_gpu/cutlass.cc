// Stands in for the grouped kernels of calibration/bench/cuda/cutlass_sm80.cu and cutlass_sm90.cu: one launch with a
// rate of its own (laws.h). CUTLASS's device code is not emulated.
#include "calibration/bench/cuda/cutlass_grouped.h"
#include "products.h"

namespace moesim::bench {
namespace {

class OnVirtualGpu : public CutlassGrouped {
 public:
  explicit OnVirtualGpu(const std::vector<Product>& products) {
    for (const Product& p : products)
      all_.push_back({p.turn_a, p.turn_b, p.rows, p.columns, p.depth, p.a, p.b, p.c, CUDA_R_16BF, CUDA_R_16BF,
                      p.lda, p.ldb, p.ldc});
  }
  void run(cudaStream_t stream) override {
    virtual_gpu::products(stream, all_, virtual_gpu::Units::kCutlass, virtual_gpu::kLaunch);
  }

 private:
  std::vector<virtual_gpu::Gemm> all_;
};

}  // namespace

std::unique_ptr<CutlassGrouped> cutlass_sm80(const std::vector<Product>& products) {
  return std::make_unique<OnVirtualGpu>(products);
}
std::unique_ptr<CutlassGrouped> cutlass_sm90(const std::vector<Product>& products) {
  return std::make_unique<OnVirtualGpu>(products);
}

}  // namespace moesim::bench
