#include "models/dispatchers/parts/torchtitan.h"

#include <fmt/format.h>

#include <algorithm>

namespace moesim::models {

TorchtitanOptions::TorchtitanOptions(DispatcherOptions& options, Torchtitan source) {
  const bool fork = source != Torchtitan::kUpstream, whole = source == Torchtitan::kWholeFork;
  static constexpr std::array<std::string_view, 4> kExperts{"grouped", "loop", "batched", "fork"};
  static constexpr std::array<std::string_view, 3> kInPlace{"false", "true", "auto"};
  static constexpr std::array<std::string_view, 2> kCounts{"histogram", "router"};
  experts = static_cast<Experts>(options.choice(
      "experts", static_cast<std::size_t>(whole ? Experts::kFork : Experts::kGrouped), kExperts));
  score_before = options.flag("score_before_experts", false);
  // The fork casts scores applied after the experts to the rows' type; before the experts it also computes in
  // fp32.
  score_fp32 = options.flag("score_fp32", !fork || score_before);
  old_scatter = options.flag("old_scatter_add", false);
  in_place = static_cast<InPlace>(options.choice(
      "scatter_add_in_place", static_cast<std::size_t>(fork ? InPlace::kAuto : InPlace::kNever), kInPlace));
  alias = options.flag("shared_output_is_input", false);
  fused_activation = options.flag("fused_activation", false);
  counted = options.choice("counts", whole ? 1 : 0, kCounts) == 1;
  asked_counted = counted && options.given("counts");
  const bool may_batch = experts == Experts::kBatched || experts == Experts::kFork;
  for (const std::string_view key : {"weights_cached", "contiguous"})
    if (options.given(key) && !may_batch)
      options.fail(fmt::format("found {} without experts=batched or experts=fork, which it belongs to", key));
  weights_cached = options.flag("weights_cached", true);
  contiguous = options.flag("contiguous", false);
  if (alias && in_place == InPlace::kNever)
    options.fail("found shared_output_is_input without scatter_add_in_place, whose guard it is");
}

bool uniform_on(const LayerSizes& f, int rank) {
  const auto first = f.experts.begin() + std::ptrdiff_t{rank} * f.E_l;
  return std::all_of(first, first + f.E_l, [&](std::int64_t n) { return n == *first; });
}

bool uniform_on_every_rank(const LayerSizes& f) {
  for (int r = 0; r < f.R; ++r)
    if (!uniform_on(f, r)) return false;
  return true;
}

std::optional<std::string> TorchtitanOptions::illegal(const MoeLayer& layer, const LayerSizes& f) const {
  if (in_place == InPlace::kAlways && layer.train)
    return "scatter_add_in_place needs a pass without gradients: autograd forbids writing over the target";
  if (alias && layer.shared_ffn == 0)
    return "shared_output_is_input needs shared experts: their output is the target of scatter_add";
  if (alias && in_place == InPlace::kAlways)
    return "scatter_add_in_place would write over the layer's input, which shared_experts(x) returns";
  if (asked_counted && layer.tp > 1)
    return "counts=router has no effect behind a sequence-parallel split: every rank counts its share again";
  if (experts == Experts::kBatched) {
    if (layer.train)
      return "experts=batched needs a pass without gradients: the cached weight layouts have none";
    if (!uniform_on_every_rank(f))
      return "experts=batched needs the same number of rows for every local expert of a rank";
  }
  return std::nullopt;
}

TorchtitanSteps::TorchtitanSteps(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                                 const TorchtitanOptions& options)
    : b_(builder), layer_(layer), f_(sizes), o_(options), block_(expert_block(layer, sizes, builder)) {
  block_.split_gate = true;
  expert_rows_ = f_.experts;
  using Experts = TorchtitanOptions::Experts;
  block_.backend = o_.experts == Experts::kGrouped ? GemmBackend::kGroupedMm : GemmBackend::kLoop;
  // Every rank decides independently: no collective lies in between.
  batch_.assign(static_cast<std::size_t>(f_.R), o_.experts == Experts::kBatched ? 1 : 0);
  if (o_.experts == Experts::kFork && !layer.train)
    for (int r = 0; r < f_.R; ++r) batch_[static_cast<std::size_t>(r)] = uniform_on(f_, r) ? 1 : 0;
  batches_ = std::find(batch_.begin(), batch_.end(), 1) != batch_.end();
  loops_ = std::find(batch_.begin(), batch_.end(), 0) != batch_.end();
  sent_ = b_.scaled(f_.sent, f_.w);
  computed_ = b_.scaled(f_.computed, f_.w);
  targets_ = f_.tokens;
  for (std::int64_t& t : targets_) t *= layer.tp;
  auto& counters = b_.program().counters;
  const auto count = [&](const char* name) { counters.emplace_back(name, 1); };
  if (o_.score_before) {
    count("score_before_experts");
  } else {
    count(!o_.score_fp32 && layer.activation == DType::kBf16 ? "score_after_experts_bf16"
                                                             : "score_after_experts");
  }
  if (batches_) {
    count("batched_no_grad_experts");
    count(o_.weights_cached ? "cached_w13_hit" : "cached_w13_miss");
    count(o_.weights_cached ? "cached_w2_t_hit" : "cached_w2_t_miss");
  }
  count(o_.scatters_in_place(layer) ? "scatter_add_inplace_no_grad"
                                    : "scatter_add_out_of_place_autograd_or_alias");
}

void TorchtitanSteps::set_expert_rows(std::vector<std::int64_t> per_expert) {
  block_.rows = sums_per_rank(per_expert, f_.E_l);
  expert_rows_ = std::move(per_expert);
  block_.table = b_.table(f_.E_l, expert_rows_);
  computed_ = b_.scaled(block_.rows, f_.w);
}

void TorchtitanSteps::save_input() {
  b_.save("layer input", b_.scaled(f_.tokens, f_.w));
  b_.save("sort indices and scores", b_.scaled(f_.sent, 8 + 8 + f_.b_p));
}

void TorchtitanSteps::count_rows() {
  if (o_.counted && layer_.tp == 1) return;  // after a sequence-parallel split a rank counts its share again
  b_.kernel("count rows per expert", Category::permute, KernelClass::kHistogram, b_.scaled(f_.sent, 8),
            b_.uniform(f_.E * 8));
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

std::vector<std::int64_t> TorchtitanSteps::of_ranks(bool uniform,
                                                    const std::vector<std::int64_t>& rows) const {
  std::vector<std::int64_t> all = rows;
  for (int r = 0; r < f_.R; ++r)
    if (uniform_on(f_, r) != uniform) all[static_cast<std::size_t>(r)] = 0;
  return all;
}

void TorchtitanSteps::index_and_gather() {
  const PerRank indices = b_.scaled(block_.rows, 8);
  b_.save("permutation indices", indices);
  b_.kernel("permutation indices", Category::permute, KernelClass::kElementwise, b_.scaled(block_.rows, 24),
            b_.scaled(block_.rows, 24), 8);
  b_.save("expert input", computed_);
  b_.kernel("gather expert-major", Category::permute, KernelClass::kGatherRows,
            b_.scaled(f_.computed, f_.w + 8), computed_);
  permuted_ = true;
}

// A rank whose local experts have equally many rows copies a transposed view; the others index.
void TorchtitanSteps::view_or_gather() {
  if (!uniform_on_every_rank(f_)) {
    const std::vector<std::int64_t> indexed = of_ranks(false, f_.computed);
    b_.save("permutation indices", b_.scaled(indexed, 8));
    b_.kernel("permutation indices", Category::permute, KernelClass::kElementwise, b_.scaled(indexed, 24),
              b_.scaled(indexed, 24), 8);
  }
  b_.save("expert input", computed_);
  view_or_index(Category::permute, KernelClass::kGatherRows, "gather expert-major", "transpose copy");
  permuted_ = viewed_ = true;
}

ExpertBlock TorchtitanSteps::part_of(const std::vector<std::int64_t>& present, bool batched) const {
  ExpertBlock part = block_;
  if (batched) {
    part.backend = GemmBackend::kBatched;
    part.split_gate = false;  // w13 = concat(w1, w3)
  }
  if (!batches_ || !loops_) return part;
  std::vector<std::int64_t> rows = expert_rows_;
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] *= present[i / static_cast<std::size_t>(f_.E_l)];
  part.rows = sums_per_rank(rows, f_.E_l);
  part.table = b_.table(f_.E_l, std::move(rows));
  return part;
}

void TorchtitanSteps::run_experts() {
  // A loop and a batch slice by counts that the host must know.
  if ((block_.backend == GemmBackend::kLoop || batches_) && !counts_on_host_)
    b_.host_sync("rows per expert", Category::host_sync, b_.uniform(f_.E_l * 8));
  if (batches_) {
    // The layouts stay until the optimizer's step changes the version of the weights.
    const std::int64_t weights = 3 * std::int64_t{f_.E_l} * f_.H * f_.F * bytes_of(layer_.weight);
    b_.only_on(batch_);
    if (!o_.weights_cached)
      b_.kernel("w13 and w2_t layouts", Category::expert, KernelClass::kCopy, b_.uniform(weights),
                b_.uniform(weights), 2);
    b_.program().layer_bytes = weights;
    const ExpertBlock part = part_of(batch_, true);
    if (o_.contiguous && !permuted_) {
      const PerRank rows = b_.scaled(part.rows, f_.w);
      b_.kernel("contiguous rows", Category::expert, KernelClass::kCopy, rows, rows);
    }
    experts_forward(b_, part);
  }
  if (loops_) {
    std::vector<std::int64_t> others = batch_;
    for (std::int64_t& one : others) one = 1 - one;
    b_.only_on(others);
    ExpertBlock part = part_of(others, false);
    if (batches_) part.moves = nullptr;  // the batch fetched the weights
    experts_forward(b_, part);
  }
  b_.on_all_ranks();
  // silu and the product are two kernels in eager mode, each with its own result.
  if (f_.gated && !o_.fused_activation) b_.save("silu output", b_.scaled(block_.rows, f_.F * f_.b));
}

void TorchtitanSteps::inverse_permute() {
  b_.kernel("inverse permutation", Category::unpermute, KernelClass::kScatterRows,
            b_.scaled(f_.computed, f_.w + 8), b_.scaled(f_.computed, f_.w));
}

void TorchtitanSteps::view_or_index(Category category, KernelClass indexing, std::string_view by_index,
                                    std::string_view as_view) {
  const auto on_ranks = [&](bool uniform, std::string_view name, KernelClass kernel,
                            std::int64_t index_bytes) {
    const std::vector<std::int64_t> rows = of_ranks(uniform, f_.computed);
    if (std::any_of(rows.begin(), rows.end(), [](std::int64_t n) { return n > 0; }))
      b_.kernel(name, category, kernel, b_.scaled(rows, f_.w + index_bytes), b_.scaled(rows, f_.w));
  };
  on_ranks(false, by_index, indexing, 8);
  on_ranks(true, as_view, KernelClass::kCopy, 0);
}

void TorchtitanSteps::inverse_view_or_scatter() {
  view_or_index(Category::unpermute, KernelClass::kScatterRows, "inverse permutation", "transpose copy back");
}

void TorchtitanSteps::deterministic_scatter(std::string_view name, Category category) {
  if (o_.old_scatter) {
    // Materialises and sorts the coordinates of every element.
    b_.kernel("expand indices", category, KernelClass::kElementwise, b_.scaled(f_.sent, 8),
              b_.scaled(f_.sent, 2 * 8 * f_.H));
    b_.kernel("sort elements", category, KernelClass::kSort, b_.scaled(f_.sent, 8 * 16 * f_.H),
              b_.scaled(f_.sent, 8 * 16 * f_.H), 8);
  } else {
    sort_keys(b_, "sort token ids", category, f_.sent, 8, 8, 64);
  }
  // Out of place copies the target first; in place writes over it.
  const bool in_place = o_.scatters_in_place(layer_);
  b_.kernel(name, category, KernelClass::kScatterAddDeterministic,
            combined(b_, f_.sent, f_.w + 16, targets_, in_place ? f_.w : 2 * f_.w),
            b_.scaled(targets_, (in_place ? 1 : 2) * f_.w), in_place ? 1 : 2);
}

void TorchtitanSteps::scatter_add_back() {
  const PerRank output = b_.scaled(targets_, f_.w);
  // After a sequence-parallel split rows go to their positions among the tokens of all ranks of the group:
  // batch * L * sp + rank * L + place mod L.
  if (layer_.tp > 1)
    b_.kernel("positions before the split", Category::unpermute, KernelClass::kElementwise,
              b_.scaled(f_.sent, 4 * 8), b_.scaled(f_.sent, 4 * 8), 4);
  b_.allocate("output", output);
  const bool copies = !o_.scatters_in_place(layer_);
  if (copies) b_.allocate("copy of the output", output);
  deterministic_scatter("scatter_add", Category::unpermute);
  if (copies) b_.free("copy of the output", output);
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
  if (viewed_)
    return view_or_index(Category::unpermute, KernelClass::kGatherRows, "inverse permutation backward",
                         "transpose copy back, backward");
  gather_rows(b_, "inverse permutation backward", Category::unpermute, f_.computed, f_.w);
}

void TorchtitanSteps::experts_backward_pass() { experts_backward(b_, block_); }

void TorchtitanSteps::index_backward() {
  if (viewed_)
    return view_or_index(Category::permute, KernelClass::kScatterRows, "gather expert-major backward",
                         "transpose copy backward");
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

void TorchtitanSteps::begin() {
  b_.begin(ProgramBuilder::Pass::kForward);
  save_input();
  count_rows();
  sort_and_gather();
  score(true);
}

void TorchtitanSteps::run_exchanged(const Exchange& exchange) {
  const PerRank received = b_.scaled(f_.computed, f_.w);
  b_.allocate("received rows", received);
  exchange("tokens", Category::dispatch, true);
  index_and_gather();
  b_.free("received rows", received);
  run_experts();
  inverse_permute();
}

void TorchtitanSteps::return_rows(const Exchange& exchange) {
  exchange("tokens", Category::combine, false);
  score(false);
  scatter_add_back();
  free_experts();
  if (!layer_.train) return;
  b_.begin(ProgramBuilder::Pass::kBackward);
  gather_gradient();
  exchange("output gradient", Category::combine, true);
  inverse_permute_backward();
  experts_backward_pass();
  index_backward();
  exchange("hidden gradient", Category::dispatch, false);
  input_gradient();
}

Program torchtitan_local_program(const MoeLayer& layer, const TorchtitanOptions& o) {
  const LayerSizes f(layer);
  ProgramBuilder b(layer.ep, layer.etp, layer.tp);
  TorchtitanSteps steps(b, layer, f, o);
  steps.begin();
  b.save("expert input", b.scaled(f.computed, f.w));
  steps.run_experts();
  steps.score(false);
  steps.scatter_add_back();
  steps.free_experts();
  if (layer.train) {
    b.begin(ProgramBuilder::Pass::kBackward);
    steps.gather_gradient();
    b.allocate("incoming gradient", steps.computed_bytes());
    steps.experts_backward_pass();
    steps.input_gradient();
  }
  return finish(b, layer, f, steps.computed_rows());
}

Program torchtitan_normal_program(const MoeLayer& layer, const LayerSizes& f, const TorchtitanOptions& o) {
  ProgramBuilder b(layer.ep, layer.etp, layer.tp);
  const int matrix = b.matrix(GroupKind::kEp, f.splits);
  TorchtitanSteps steps(b, layer, f, o);
  const auto exchange = [&](std::string_view name, Category category, bool there) {
    b.all_to_all_v(name, category, layer.activation, matrix, !there, f.w);
  };
  steps.begin();
  exchange_counts(b, f);
  steps.run_exchanged(exchange);
  steps.return_rows(exchange);
  return finish(b, layer, f, steps.computed_rows());
}

void exchange_counts(ProgramBuilder& b, const LayerSizes& f) {
  b.all_to_all(GroupKind::kEp, "counts", Category::dispatch, DType::kInt64, f.E * 8);
  if (f.ep > 1)
    b.host_sync("input and output splits", Category::host_sync, b.uniform(2 * std::int64_t{f.ep} * 8));
}

}  // namespace moesim::models
