#include "models/dispatchers/parts/torchtitan.h"

#include <algorithm>

namespace moesim::models {

TorchtitanOptions::TorchtitanOptions(DispatcherOptions& options) {
  static constexpr std::array<std::string_view, 3> kExperts{"grouped", "loop", "batched"};
  experts = static_cast<Experts>(options.choice("experts", 0, kExperts));
  score_before = options.flag("score_before_experts", false);
  score_fp32 = options.flag("score_fp32", true);
  old_scatter = options.flag("old_scatter_add", false);
  in_place = options.flag("scatter_add_in_place", false);
  fused_activation = options.flag("fused_activation", false);
  weights_cached = options.flag("weights_cached", true);
}

std::optional<std::string> TorchtitanOptions::illegal(const MoeLayer& layer) const {
  if (in_place && layer.train)
    return "scatter_add_in_place needs a pass without gradients: autograd forbids writing over the target";
  if (experts == Experts::kBatched) {
    if (layer.train)
      return "experts=batched needs a pass without gradients: the cached weight layouts have none";
    const std::vector<std::int64_t> N = layer.routing->expert_totals();
    if (std::any_of(N.begin(), N.end(), [&](std::int64_t n) { return n != N.front(); }))
      return "experts=batched needs the same number of rows for every expert";
  }
  return std::nullopt;
}

TorchtitanSteps::TorchtitanSteps(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                                 const TorchtitanOptions& options)
    : b_(builder), layer_(layer), f_(sizes), o_(options), block_(expert_block(layer, sizes, builder)) {
  block_.split_gate = true;
  if (o_.experts == TorchtitanOptions::Experts::kLoop) block_.backend = GemmBackend::kLoop;
  if (o_.experts == TorchtitanOptions::Experts::kBatched) {
    block_.backend = GemmBackend::kBatched;
    block_.split_gate = false;  // w13 = concat(w1, w3)
  }
  sent_ = b_.scaled(f_.sent, f_.w);
  computed_ = b_.scaled(f_.computed, f_.w);
  auto& counters = b_.program().counters;
  const auto count = [&](const char* name) { counters.emplace_back(name, 1); };
  if (o_.score_before) {
    count("score_before_experts");
  } else {
    count(o_.score_fp32 ? "score_after_experts" : "score_after_experts_bf16");
  }
  if (o_.experts == TorchtitanOptions::Experts::kBatched) {
    count("batched_no_grad_experts");
    count(o_.weights_cached ? "cached_w13_hit" : "cached_w13_miss");
    count(o_.weights_cached ? "cached_w2_t_hit" : "cached_w2_t_miss");
  }
  count(o_.in_place ? "scatter_add_inplace_no_grad" : "scatter_add_out_of_place_autograd_or_alias");
}

void TorchtitanSteps::set_expert_rows(std::vector<std::int64_t> per_expert) {
  block_.rows = sums_per_rank(per_expert, f_.E_l);
  block_.table = b_.table(f_.E_l, std::move(per_expert));
  computed_ = b_.scaled(block_.rows, f_.w);
}

void TorchtitanSteps::save_input() {
  b_.save("layer input", b_.scaled(f_.tokens, f_.w));
  b_.save("sort indices and scores", b_.scaled(f_.sent, 8 + 8 + f_.b_p));
}

void TorchtitanSteps::sort_and_gather(bool indices_cached) {
  if (!indices_cached) sort_keys(b_, "sort by expert", Category::permute, f_.sent, 8, 8, 64);
  b_.kernel("gather scores and token ids", Category::permute, KernelClass::kGatherRows,
            b_.scaled(f_.sent, 16 + f_.b_p), b_.scaled(f_.sent, 8 + f_.b_p), 2);
  b_.allocate("sorted rows", sent_);
  gather_rows(b_, "gather rows", Category::permute, f_.sent, f_.w);
}

void TorchtitanSteps::score(bool before) {
  if (before != o_.score_before) return;
  const Category category = before ? Category::permute : Category::unpermute;
  // Eager: upcast, multiply, downcast; each reads and writes the rows.
  if (o_.score_fp32) {
    b_.kernel("multiply scores", category, KernelClass::kElementwise,
              b_.scaled(f_.sent, f_.w + 8 * f_.H + f_.b_p), b_.scaled(f_.sent, f_.H * (8 + f_.b)), 3);
  } else {
    b_.kernel("multiply scores", category, KernelClass::kElementwise, b_.scaled(f_.sent, f_.w + f_.b_p),
              sent_);
  }
  b_.save("rows for the gradient of the scores", b_.scaled(f_.sent, f_.H * (o_.score_fp32 ? 4 : f_.b)));
}

void TorchtitanSteps::index_and_gather() {
  const PerRank indices = b_.scaled(block_.rows, 8);
  b_.save("permutation indices", indices);
  b_.kernel("permutation indices", Category::permute, KernelClass::kElementwise, b_.scaled(block_.rows, 24),
            b_.scaled(block_.rows, 24), 8);
  b_.save("expert input", computed_);
  b_.kernel("gather expert-major", Category::permute, KernelClass::kGatherRows,
            b_.scaled(f_.computed, f_.w + 8), computed_);
}

void TorchtitanSteps::transpose_copy() {
  b_.save("expert input", computed_);
  b_.kernel("transpose copy", Category::permute, KernelClass::kCopy, computed_, computed_);
}

void TorchtitanSteps::run_experts() {
  if (o_.experts == TorchtitanOptions::Experts::kLoop)
    b_.host_sync("rows per expert", Category::host_sync, b_.uniform(f_.E_l * 8));
  if (o_.experts == TorchtitanOptions::Experts::kBatched && !o_.weights_cached) {
    const std::int64_t weights = 3 * std::int64_t{f_.E_l} * f_.H * f_.F * bytes_of(layer_.weight);
    b_.kernel("w13 and w2_t layouts", Category::expert, KernelClass::kCopy, b_.uniform(weights),
              b_.uniform(weights), 2);
    b_.program().persistent_bytes += weights;
  }
  experts_forward(b_, block_);
  // silu and the product are two kernels in eager mode, with their own result.
  if (f_.gated && !o_.fused_activation) b_.save("silu output", b_.scaled(block_.rows, f_.F * f_.b));
}

void TorchtitanSteps::inverse_permute() {
  b_.kernel("inverse permutation", Category::unpermute, KernelClass::kScatterRows,
            b_.scaled(f_.computed, f_.w + 8), b_.scaled(f_.computed, f_.w));
}

void TorchtitanSteps::deterministic_scatter(std::string_view name, Category category) {
  if (o_.old_scatter) {
    // Coordinates of every element are materialised and sorted.
    b_.kernel("expand indices", category, KernelClass::kElementwise, b_.scaled(f_.sent, 8),
              b_.scaled(f_.sent, 2 * 8 * f_.H));
    b_.kernel("sort elements", category, KernelClass::kSort, b_.scaled(f_.sent, 8 * 16 * f_.H),
              b_.scaled(f_.sent, 8 * 16 * f_.H), 8);
  } else {
    sort_keys(b_, "sort token ids", category, f_.sent, 8, 8, 64);
  }
  // Out of place copies the target first; in place writes over it.
  b_.kernel(name, category, KernelClass::kScatterAddDeterministic,
            combined(b_, f_.sent, f_.w + 16, f_.tokens, o_.in_place ? f_.w : 2 * f_.w),
            b_.scaled(f_.tokens, (o_.in_place ? 1 : 2) * f_.w), o_.in_place ? 1 : 2);
}

void TorchtitanSteps::scatter_add_back() {
  const PerRank output = b_.scaled(f_.tokens, f_.w);
  b_.allocate("output", output);
  deterministic_scatter("scatter_add", Category::unpermute);
  b_.free("output", output);
  b_.free("sorted rows", sent_);
}

void TorchtitanSteps::gather_gradient() {
  b_.allocate("gradient of returned rows", sent_);
  gather_rows(b_, "scatter_add backward", Category::unpermute, f_.sent, f_.w);
  if (!o_.score_before)
    b_.kernel("scores backward", Category::unpermute, KernelClass::kElementwise,
              b_.scaled(f_.sent, f_.w + (o_.score_fp32 ? 8 : 2 * f_.b) * f_.H + f_.b_p),
              b_.scaled(f_.sent, f_.w + f_.b_p), 2);
}

void TorchtitanSteps::inverse_permute_backward() {
  b_.allocate("incoming gradient", computed_);
  gather_rows(b_, "inverse permutation backward", Category::unpermute, f_.computed, f_.w);
}

void TorchtitanSteps::experts_backward_pass() { experts_backward(b_, block_); }

void TorchtitanSteps::index_backward() {
  b_.kernel("gather expert-major backward", Category::permute, KernelClass::kScatterRows,
            b_.scaled(f_.computed, f_.w + 8), b_.scaled(f_.computed, f_.w));
}

void TorchtitanSteps::input_gradient() {
  if (o_.score_before)
    b_.kernel("scores backward", Category::permute, KernelClass::kElementwise,
              b_.scaled(f_.sent, 2 * f_.w + f_.b_p), b_.scaled(f_.sent, f_.w + f_.b_p), 2);
  const PerRank input = b_.scaled(f_.tokens, f_.w);
  b_.allocate("gradient of the input", input);
  scatter_add(b_, "gather rows backward", Category::permute, f_.sent, f_.tokens, f_.w);
  b_.free("gradient of the input", input);
  b_.free("incoming gradient", computed_);
  b_.free("gradient of returned rows", sent_);
}

void exchange_counts(ProgramBuilder& b, const LayerSizes& f) {
  b.all_to_all(GroupKind::kEp, "counts", Category::dispatch, DType::kInt64, f.E * 8);
  if (f.ep > 1)
    b.host_sync("input and output splits", Category::host_sync, b.uniform(2 * std::int64_t{f.ep} * 8));
}

}  // namespace moesim::models
