// CUTLASS 3.x: TMA loads and two warp groups that alternate between tiles of all products
// (gemm/group_array_problem_shape.hpp, gemm/collective/collective_builder.hpp).
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "cutlass_arrays.h"

namespace moesim::bench {
namespace {

using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;

// A matrix's stride has one static extent of 1, along which it is contiguous, and one that is set.
template <class Stride>
Stride stride_of(int leading) {
  Stride stride;
  if constexpr (cute::is_static_v<cute::remove_cvref_t<decltype(cute::get<0>(stride))>>)
    cute::get<1>(stride) = leading;
  else
    cute::get<0>(stride) = leading;
  return stride;
}

constexpr int kAligned = 8;  // elements: sixteen bytes
using Tile = cute::Shape<cute::_128, cute::_128, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, ColumnMajor*, kAligned, Bf16,
    ColumnMajor*, kAligned, cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;

using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
    sizeof(typename Epilogue::SharedStorage))>;
template <class LayoutA, class LayoutB>
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Bf16, LayoutA*, kAligned, Bf16, LayoutB*, kAligned,
    float, Tile, Cluster, Stages, cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
using Shape = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
// Named here since nvcc writes an epilogue inside a template without its typename.
using Forward = cutlass::gemm::kernel::GemmUniversal<Shape, Mainloop<ColumnMajor, ColumnMajor>, Epilogue>;
using Dgrad = cutlass::gemm::kernel::GemmUniversal<Shape, Mainloop<RowMajor, ColumnMajor>, Epilogue>;
using Wgrad = cutlass::gemm::kernel::GemmUniversal<Shape, Mainloop<ColumnMajor, RowMajor>, Epilogue>;

template <class Kernel>
class Sm90 : public CutlassGrouped {
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Size = typename Shape::UnderlyingProblemShape;
  using StrideA = typename Kernel::InternalStrideA;
  using StrideB = typename Kernel::InternalStrideB;
  using StrideD = typename Kernel::InternalStrideD;

 public:
  explicit Sm90(const std::vector<Product>& products)
      : host_sizes_(of_each(products, [](const Product& p) { return Size(p.rows, p.columns, p.depth); })),
        sizes_(host_sizes_),
        a_(of_each(products, [](const Product& p) -> const Bf16* { return element(p.a); })),
        b_(of_each(products, [](const Product& p) -> const Bf16* { return element(p.b); })),
        d_(of_each(products, [](const Product& p) { return element(p.c); })),
        stride_a_(of_each(products, [](const Product& p) { return stride_of<StrideA>(p.lda); })),
        stride_b_(of_each(products, [](const Product& p) { return stride_of<StrideB>(p.ldb); })),
        stride_d_(of_each(products, [](const Product& p) { return stride_of<StrideD>(p.ldc); })) {
    typename Gemm::Arguments arguments;
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    arguments.problem_shape = {static_cast<int>(products.size()), sizes_.get(), host_sizes_.data()};
    arguments.mainloop = {a_.get(), stride_a_.get(), b_.get(), stride_b_.get()};
    arguments.epilogue.thread.alpha = 1;
    arguments.epilogue.thread.beta = 0;
    arguments.epilogue.ptr_D = d_.get();
    arguments.epilogue.dD = stride_d_.get();
    require(cudaGetDevice(&arguments.hw_info.device_id), "cudaGetDevice");
    arguments.hw_info.sm_count =
        cutlass::KernelHardwareInfo::query_device_multiprocessor_count(arguments.hw_info.device_id);
    workspace_ = std::make_unique<Buffer>(Gemm::get_workspace_size(arguments));
    require(Gemm::can_implement(arguments), "CUTLASS's grouped product");
    require(gemm_.initialize(arguments, workspace_->as<void>()), "CUTLASS's grouped product");
  }
  void run(cudaStream_t stream) override { require(gemm_.run(stream), "CUTLASS's grouped product"); }

 private:
  std::vector<Size> host_sizes_;
  DeviceArray<Size> sizes_;
  DeviceArray<const Bf16*> a_, b_;
  DeviceArray<Bf16*> d_;
  DeviceArray<StrideA> stride_a_;
  DeviceArray<StrideB> stride_b_;
  DeviceArray<StrideD> stride_d_;
  std::unique_ptr<Buffer> workspace_;
  Gemm gemm_;
};

}  // namespace

std::unique_ptr<CutlassGrouped> cutlass_sm90(const std::vector<Product>& products) {
  const Product& first = products.front();
  if (first.turn_a) return std::make_unique<Sm90<Dgrad>>(products);
  if (first.turn_b) return std::make_unique<Sm90<Wgrad>>(products);
  return std::make_unique<Sm90<Forward>>(products);
}

}  // namespace moesim::bench
