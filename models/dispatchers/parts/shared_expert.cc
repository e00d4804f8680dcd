#include "models/dispatchers/parts/shared_expert.h"

#include <algorithm>

namespace moesim::models {

SharedExpert::SharedExpert(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                           bool overlapped)
    : b_(builder), f_(sizes), active_(overlapped && layer.shared_ffn > 0), dtype_(layer.activation) {
  if (!active_) return;
  builder.program().runs_shared_expert = true;
  tp_ = layer.tp;
  F_ = std::max<std::int64_t>(1, layer.shared_ffn / layer.tp);
  rows_ = sizes.tokens;
  for (std::int64_t& r : rows_) r *= tp_;
  table_ = builder.table(1, rows_);
}

void SharedExpert::gemm(std::string_view name, GemmPass pass, bool up_weight) {
  const std::int64_t up = (f_.gated ? 2 : 1) * F_;
  b_.beside(Stream::kShared);
  last_ = b_.gemm(name, Category::expert, pass, GemmBackend::kGrouped, dtype_, table_, up_weight ? up : f_.H,
                  up_weight ? f_.H : F_, 1, 1);
}

void SharedExpert::activation(std::string_view name, std::int64_t read_columns,
                              std::int64_t written_columns) {
  b_.beside(Stream::kShared);
  last_ = b_.kernel(name, Category::expert, KernelClass::kElementwise, b_.scaled(rows_, read_columns * f_.b),
                    b_.scaled(rows_, written_columns * f_.b));
}

void SharedExpert::gather() {
  if (!active_) return;
  b_.beside(Stream::kShared);
  last_ = b_.all_gather(GroupKind::kDense, "shared expert input", Category::expert, dtype_, f_.T() * f_.w);
}

void SharedExpert::up() {
  if (!active_) return;
  gemm("shared fc1", GemmPass::kForward, true);
  activation("shared activation", (f_.gated ? 2 : 1) * F_, F_);
}

void SharedExpert::down() {
  if (!active_) return;
  gemm("shared fc2", GemmPass::kForward, false);
  if (tp_ == 1) return;
  b_.beside(Stream::kShared);
  last_ =
      b_.reduce_scatter(GroupKind::kDense, "shared expert output", Category::expert, dtype_, f_.T() * f_.w);
}

void SharedExpert::add() {
  if (!active_) return;
  b_.join(last_);
  b_.kernel("add shared expert", Category::unpermute, KernelClass::kElementwise,
            b_.scaled(f_.tokens, 2 * f_.w), b_.scaled(f_.tokens, f_.w));
}

void SharedExpert::backward_gather() {
  if (!active_) return;
  b_.beside(Stream::kShared);
  last_ = b_.all_gather(GroupKind::kDense, "shared expert output gradient", Category::expert, dtype_,
                        f_.T() * f_.w);
}

void SharedExpert::backward_down() {
  if (!active_) return;
  const std::int64_t up = (f_.gated ? 2 : 1) * F_;
  gemm("shared fc2 dgrad", GemmPass::kDgrad, false);
  gemm("shared fc2 wgrad", GemmPass::kWgrad, false);
  activation("shared activation backward", up + F_, up);
}

void SharedExpert::backward_up() {
  if (!active_) return;
  gemm("shared fc1 dgrad", GemmPass::kDgrad, true);
  gemm("shared fc1 wgrad", GemmPass::kWgrad, true);
  if (tp_ == 1) return;
  b_.beside(Stream::kShared);
  last_ = b_.reduce_scatter(GroupKind::kDense, "shared expert input gradient", Category::expert, dtype_,
                            f_.T() * f_.w);
}

}  // namespace moesim::models
