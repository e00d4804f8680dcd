// Megatron AllGather dispatcher, legacy index form (docs/spec.md 2.1.2), as recorded by scaling mode: hidden
// states first, then top-k indices and probabilities; a mask finds the rows, with up to four host syncs.
#include "models/dispatchers/parts/common.h"

namespace moesim::models {

namespace {

class AllGatherLegacy final : public Dispatcher {
 public:
  explicit AllGatherLegacy(DispatcherOptions& options)
      : expert_bias_(options.flag("expert_bias", false)),
        row_kernels_(options.flag("row_kernels", false)),
        global_buffer_(options.flag("global_buffer", true)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (!layer.routing->equal_tokens())
      return "every rank must hold the same number of tokens (variable sequence lengths are rejected)";
    if (layer.tp > 1 && layer.etp != layer.tp)
      return "it gathers over tp x ep, from before parallel folding: etp must be tp";
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);
    const std::int64_t T = f.T(), RT = f.R * T;
    const std::vector<std::int64_t> gathered(f.R, RT);
    const bool weighted = f.K > 1;  // with K = 1 the probability is multiplied after the reduce-scatter
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const ExpertBlock block = expert_block(layer, f, b);
    const PerRank all_rows = b.uniform(RT * f.w), mask = b.uniform(RT * f.K),
                  rows = b.scaled(f.computed, f.w);

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("router input", b.uniform(T * f.w));
    // One buffer for all layers; upstream requests it, a wrapper that drops the argument gets one per layer.
    const bool buffered = global_buffer_ && f.R > 1;
    if (buffered)
      b.program().persistent_bytes = RT * f.w;
    else
      b.allocate("gathered hidden states", all_rows);
    b.all_gather(GroupKind::kTpEp, "hidden states", Category::dispatch, layer.activation, T * f.w);
    b.save("indices of local rows", b.scaled(f.computed, 8 + f.b_p));
    b.all_gather(GroupKind::kTpEp, "indices", Category::dispatch, DType::kInt64, T * f.K * 8);
    b.kernel("mask of local experts", Category::permute, KernelClass::kElementwise, b.uniform(RT * f.K * 8),
             mask, 3);
    select(b, "local indices", b.uniform(RT * f.K * 9), b.scaled(f.computed, 8));
    if (weighted) {
      b.all_gather(GroupKind::kTpEp, "probabilities", Category::dispatch, layer.router, T * f.K * f.b_p);
      select(b, "local probabilities", b.uniform(RT * f.K * (1 + f.b_p)), b.scaled(f.computed, f.b_p));
    }
    select(b, "local row map", mask, b.scaled(f.computed, 8));
    rows_kernel(b, "global to local rows", f, KernelClass::kGatherRows);
    b.allocate("local rows", rows);
    b.kernel("count rows per expert", Category::permute, KernelClass::kHistogram, b.scaled(f.computed, 8),
             b.uniform(f.E_l * 8));
    b.host_sync("rows per expert", Category::host_sync, b.uniform(f.E_l * 8));
    sort_keys(b, "sort by expert", Category::permute, f.computed, 8, 8, 64);
    rows_kernel(b, "rows by expert", f, KernelClass::kGatherRows);
    b.save("permuted rows", rows);
    b.free("local rows", rows);
    if (!buffered) b.free("gathered hidden states", all_rows);
    experts_forward(b, block);
    b.kernel("unsort rows", Category::unpermute, KernelClass::kScatterRows, b.scaled(f.computed, f.w + 8),
             rows);
    if (weighted) {
      b.save("expert output", rows);  // for the gradient of the probabilities
      b.kernel("multiply probabilities", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.computed, f.w + f.b_p), rows);
    }
    b.allocate("summed output", all_rows);
    scatter_add(b, "add into all rows", Category::unpermute, f.computed, gathered, f.w);
    free_expert_output(b, block);
    b.reduce_scatter(GroupKind::kTpEp, "output", Category::combine, layer.activation, T * f.w);
    if (expert_bias_) bias_forward(b, layer, f, gathered);
    b.free("summed output", all_rows);
    if (!weighted)
      b.kernel("multiply probabilities", Category::unpermute, KernelClass::kElementwise,
               b.uniform(T * (f.w + f.b_p)), b.uniform(T * f.w));
    if (layer.train) backward(b, layer, f, block, gathered);
    return finish(b, layer, f, f.computed);
  }

 private:
  // masked_select or nonzero: the host reads back the size of the result.
  static void select(ProgramBuilder& b, std::string_view name, PerRank read, PerRank written) {
    b.kernel(name, Category::permute, KernelClass::kSelect, read, written);
    b.host_sync(name, Category::host_sync, b.uniform(8));
  }

  // Gathers element by element with expanded indices (8 bytes per element), or row by row.
  void rows_kernel(ProgramBuilder& b, std::string_view name, const LayerSizes& f, KernelClass kernel) const {
    const std::int64_t index = row_kernels_ ? 8 : 8 * f.H;
    b.kernel(name, Category::permute, kernel, b.scaled(f.computed, f.w + index), b.scaled(f.computed, f.w));
  }

  // The bias of every row is unsorted, weighted, added up and reduced like the row, and divided by the
  // tensor-parallel size, whose ranks all added it.
  static void bias_forward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f,
                           const std::vector<std::int64_t>& gathered) {
    const std::int64_t T = f.T();
    const PerRank rows = b.scaled(f.computed, f.w), all_rows = b.uniform(f.R * T * f.w);
    b.allocate("bias of the rows", rows);
    b.kernel("unsort bias", Category::unpermute, KernelClass::kScatterRows, b.scaled(f.computed, f.w + 8),
             rows);
    if (f.K > 1)
      b.kernel("multiply bias", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.computed, f.w + f.b_p), rows);
    b.allocate("summed bias", all_rows);
    scatter_add(b, "add bias into all rows", Category::unpermute, f.computed, gathered, f.w);
    b.reduce_scatter(GroupKind::kTpEp, "expert bias", Category::combine, layer.activation, T * f.w);
    b.kernel("divide bias by tp", Category::unpermute, KernelClass::kElementwise, b.uniform(T * f.w),
             b.uniform(T * f.w));
    b.free("summed bias", all_rows);
    b.free("bias of the rows", rows);
  }

  static void bias_backward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f) {
    const std::int64_t T = f.T();
    const PerRank rows = b.scaled(f.computed, f.w), all_rows = b.uniform(f.R * T * f.w);
    b.allocate("gathered bias gradient", all_rows);
    b.all_gather(GroupKind::kTpEp, "expert bias gradient", Category::combine, layer.activation, T * f.w);
    b.allocate("bias gradient of the rows", rows);
    gather_rows(b, "gather bias gradient rows", Category::unpermute, f.computed, f.w);
    b.free("gathered bias gradient", all_rows);
    if (f.K > 1)
      b.kernel("multiply bias backward", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.computed, f.w + f.b_p), rows);
    gather_rows(b, "unsort bias backward", Category::unpermute, f.computed, f.w);
    b.kernel("sum bias gradient", Category::expert, KernelClass::kReduce, rows, b.uniform(f.E_l * f.w));
    b.free("bias gradient of the rows", rows);
  }

  void backward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f, const ExpertBlock& block,
                const std::vector<std::int64_t>& gathered) const {
    const std::int64_t T = f.T(), RT = f.R * T;
    const PerRank all_rows = b.uniform(RT * f.w), rows = b.scaled(f.computed, f.w);
    b.begin(ProgramBuilder::Pass::kBackward);
    b.allocate("gathered output gradient", all_rows);
    b.all_gather(GroupKind::kTpEp, "output gradient", Category::combine, layer.activation, T * f.w);
    b.allocate("incoming gradient", rows);
    gather_rows(b, "gather gradient rows", Category::unpermute, f.computed, f.w);
    b.free("gathered output gradient", all_rows);
    if (f.K > 1)
      b.kernel("probability backward", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.computed, 2 * f.w + f.b_p), b.scaled(f.computed, f.w + f.b_p), 2);
    gather_rows(b, "unsort backward", Category::unpermute, f.computed, f.w);
    if (expert_bias_) bias_backward(b, layer, f);
    experts_backward(b, block);
    // Both gathers saved their indices only: their backward adds into zeros.
    b.allocate("gradient of local rows", rows);
    scatter_add(b, "rows by expert backward", Category::permute, f.computed, f.computed, f.w);
    b.free("incoming gradient", rows);
    b.allocate("gradient of all rows", all_rows);
    scatter_add(b, "global to local rows backward", Category::permute, f.computed, gathered, f.w);
    b.free("gradient of local rows", rows);
    if (f.K > 1) {
      b.kernel("scatter probability gradients", Category::permute, KernelClass::kScatterRows,
               b.scaled(f.computed, 8 + f.b_p), b.uniform(RT * f.K * f.b_p), 2);
      b.reduce_scatter(GroupKind::kTpEp, "probability gradient", Category::dispatch, layer.router,
                       T * f.K * f.b_p);
    }
    b.reduce_scatter(GroupKind::kTpEp, "hidden gradient", Category::dispatch, layer.activation, T * f.w);
    b.free("gradient of all rows", all_rows);
  }

  bool expert_bias_, row_kernels_, global_buffer_;
};

}  // namespace

DispatcherEntry megatron_allgather_legacy() {
  return {"allgather-legacy", "Megatron AllGather, index form: the one that scaling-mode recordings hold",
          make_dispatcher_of<AllGatherLegacy>};
}

}  // namespace moesim::models
