// AllGather in plain torch operations, forward only: the baseline of fused libraries. The operations are those of
// bytedance/flux docs/performance.md ("functional, not tuned"): a row selection and a copy, one product per expert
// with a scale read back by the host, a concatenation, scales in fp32, rows put into zeros, a sum over the choices
// of a token, and a reduce-scatter.
#include "models/dispatchers/parts/common.h"

namespace moesim::models {

namespace {

class AllGatherTorch final : public Dispatcher {
 public:
  explicit AllGatherTorch(DispatcherOptions& options) : scales_(options.flag("scales", true)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.train) return "it has no backward: an unfused forward to compare with (--inference)";
    if (!layer.routing->equal_tokens()) return "every rank must hold the same number of tokens";
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);
    const std::int64_t T = f.T(), all = f.R * T;
    const std::vector<std::int64_t>& rows = f.computed;
    const std::vector<std::int64_t> choices(rows.size(), all * f.K), tokens(rows.size(), all);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    ExpertBlock block = expert_block(layer, f, b);
    const PerRank received = b.scaled(rows, f.w), every = b.scaled(choices, f.w),
                  gathered = b.uniform(all * f.w), output = b.uniform(T * f.w);
    const auto pass = [&](std::string_view name, Category category, PerRank read, PerRank written) {
      b.kernel(name, category, KernelClass::kElementwise, read, written);
    };

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("layer input", output);
    b.all_gather(GroupKind::kTpEp, "indices", Category::dispatch, DType::kInt64, T * f.K * 8);
    sort_keys(b, "sort indices", Category::permute, choices, 8, 8, 64);
    b.host_sync("rows per expert", Category::host_sync, b.uniform(f.E_l * 8));
    b.allocate("gathered tokens", gathered);
    b.all_gather(GroupKind::kTpEp, "tokens", Category::dispatch, layer.activation, T * f.w);
    b.allocate("selected rows", received);
    gather_rows(b, "index_select", Category::permute, rows, f.w);
    b.save("expert input", received);
    b.kernel("copy rows", Category::permute, KernelClass::kCopy, received, received);
    b.free("selected rows", received);
    b.free("gathered tokens", gathered);

    b.save("fc1 output", b.scaled(rows, f.F_up * f.b));
    per_expert(b, f, block, "fc1", f.F_up, f.H, false);
    const PerRank hidden = b.scaled(rows, f.F * f.b);
    b.save("fc2 input", hidden);
    b.kernel("activation", Category::expert, KernelClass::kElementwise, b.scaled(rows, f.F_up * f.b), hidden);
    b.allocate("outputs of the experts", received);
    per_expert(b, f, block, "fc2", f.H, f.F, true);

    b.allocate("expert output", received);
    b.kernel("concatenate", Category::unpermute, KernelClass::kCopy, received, received);
    if (scales_) {
      const PerRank wide = b.scaled(rows, f.H * 4);
      b.allocate("scaled rows in fp32", wide);
      pass("scale rows", Category::unpermute, b.scaled(rows, f.w + 4), wide);
      pass("cast rows", Category::unpermute, wide, received);
      b.free("scaled rows in fp32", wide);
    }
    b.allocate("places of all choices", every);
    b.allocate("sum of groups", every);
    b.kernel("zeros", Category::unpermute, KernelClass::kCopy, b.uniform(0), b.scaled(choices, 2 * f.w), 2);
    b.kernel("index_put", Category::unpermute, KernelClass::kScatterRows, b.scaled(rows, f.w + 8), received);
    pass("add", Category::unpermute, b.scaled(choices, 2 * f.w), every);
    b.allocate("sum over choices", gathered);
    b.kernel("sum over choices", Category::unpermute, KernelClass::kReduce, every, gathered);
    b.reduce_scatter(GroupKind::kTpEp, "output", Category::combine, layer.activation, T * f.w);
    b.free("sum over choices", gathered);
    b.free("sum of groups", every);
    b.free("places of all choices", every);
    b.free("expert output", received);
    b.free("outputs of the experts", received);
    return finish(b, layer, f, rows);
  }

 private:
  // One product and one multiplication with a scale per expert, in sequence; `read_scales`: the host reads
  // two factors back before each (torch's .item()), and launches nothing meanwhile.
  void per_expert(ProgramBuilder& b, const LayerSizes& f, const ExpertBlock& block, std::string_view name,
                  std::int64_t n, std::int64_t k, bool read_scales) const {
    for (int e = 0; e < f.E_l; ++e) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(f.R));
      for (std::size_t r = 0; r < rows.size(); ++r)
        rows[r] = f.experts[r * static_cast<std::size_t>(f.E_l) + static_cast<std::size_t>(e)];
      // Slices of tensors by lengths that are tensors, indexing and transposing: calls without launches. The
      // loop of fc1 makes 14 calls per expert, that of fc2 11 besides the two that read back.
      const int launches = scales_ ? 2 : 1;
      if (!read_scales) {
        b.host_calls("slices of one expert", 12 + launches, launches);
      } else {
        b.host_calls("slices of one expert", 6, 0);
        if (scales_) {
          b.host_sync("scale of the weight", Category::host_sync, b.uniform(4));
          b.host_calls("next scale", 1, 0);
          b.host_sync("scale of the input", Category::host_sync, b.uniform(4));
        }
        b.host_calls("product of one expert", 2 + launches, launches);
      }
      b.gemm(name, Category::expert, GemmPass::kForward, GemmBackend::kGrouped, block.dtype, b.table(1, rows),
             n, k, 1, 1);
      if (scales_)
        b.kernel("scale", Category::expert, KernelClass::kElementwise, b.scaled(rows, n * f.b),
                 b.scaled(rows, n * f.b));
    }
  }

  bool scales_;
};

}  // namespace

DispatcherEntry allgather_torch() {
  return {"allgather-torch",
          "AllGather in plain torch operations, forward only: the unfused baseline of flux",
          make_dispatcher_of<AllGatherTorch>};
}

}  // namespace moesim::models
