// CUTLASS 2.x: a persistent kernel visits the tiles of all products (device/gemm_grouped.h).
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/device/gemm_grouped.h>
#include <cutlass/gemm/kernel/default_gemm_grouped.h>
#include <cutlass/layout/matrix.h>

#include <cstdint>

#include "cutlass_arrays.h"

namespace moesim::bench {
namespace {

using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;

template <class LayoutA, class LayoutB>
class Sm80 : public CutlassGrouped {
  // Sixteen bytes a load; four stages of 128 x 128 x 32.
  static constexpr int kAligned = 8, kStages = 4;
  using Gemm = cutlass::gemm::device::GemmGrouped<typename cutlass::gemm::kernel::DefaultGemmGrouped<
      Bf16, LayoutA, cutlass::ComplexTransform::kNone, kAligned, Bf16, LayoutB,
      cutlass::ComplexTransform::kNone, kAligned, Bf16, ColumnMajor, float, cutlass::arch::OpClassTensorOp,
      cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>,
      cutlass::gemm::GemmShape<16, 8, 16>,
      cutlass::epilogue::thread::LinearCombination<Bf16, kAligned, float, float>,
      cutlass::gemm::threadblock::GemmBatchedIdentityThreadblockSwizzle, kStages>::GemmKernel>;
  using Size = cutlass::gemm::GemmCoord;

 public:
  explicit Sm80(const std::vector<Product>& products)
      : host_sizes_(of_each(products, [](const Product& p) { return Size(p.rows, p.columns, p.depth); })),
        sizes_(host_sizes_),
        a_(of_each(products, [](const Product& p) { return element(p.a); })),
        b_(of_each(products, [](const Product& p) { return element(p.b); })),
        c_(of_each(products, [](const Product& p) { return element(p.c); })),
        lda_(of_each(products, [](const Product& p) { return std::int64_t{p.lda}; })),
        ldb_(of_each(products, [](const Product& p) { return std::int64_t{p.ldb}; })),
        ldc_(of_each(products, [](const Product& p) { return std::int64_t{p.ldc}; })) {
    const int count = static_cast<int>(products.size());
    const typename Gemm::EpilogueOutputOp::Params plain(1.0f, 0.0f);
    const typename Gemm::Arguments arguments(sizes_.get(), count, Gemm::sufficient(host_sizes_.data(), count),
                                             plain, a_.get(), b_.get(), c_.get(), c_.get(), lda_.get(),
                                             ldb_.get(), ldc_.get(), ldc_.get(), host_sizes_.data());
    workspace_ = std::make_unique<Buffer>(Gemm::get_workspace_size(arguments));
    require(gemm_.initialize(arguments, workspace_->as<void>()), "CUTLASS's grouped product");
  }
  void run(cudaStream_t stream) override { require(gemm_.run(stream), "CUTLASS's grouped product"); }

 private:
  std::vector<Size> host_sizes_;
  DeviceArray<Size> sizes_;
  DeviceArray<Bf16*> a_, b_, c_;
  DeviceArray<std::int64_t> lda_, ldb_, ldc_;
  std::unique_ptr<Buffer> workspace_;
  Gemm gemm_;
};

}  // namespace

std::unique_ptr<CutlassGrouped> cutlass_sm80(const std::vector<Product>& products) {
  const Product& first = products.front();
  if (first.turn_a) return std::make_unique<Sm80<RowMajor, ColumnMajor>>(products);
  if (first.turn_b) return std::make_unique<Sm80<ColumnMajor, RowMajor>>(products);
  return std::make_unique<Sm80<ColumnMajor, ColumnMajor>>(products);
}

}  // namespace moesim::bench
