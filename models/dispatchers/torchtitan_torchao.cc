// torchtitan with TorchAO padding (docs/spec.md 2.9): each local expert's rows are padded to a multiple on
// the receiving side, for quantised grouped GEMMs; wire bytes are those of the normal path. Also without
// expert parallelism.
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

namespace {

class TorchtitanTorchAo final : public Dispatcher {
 public:
  explicit TorchtitanTorchAo(DispatcherOptions& options)
      : o_(options),
        multiple_(options.integer("multiple", 16, 1, 1 << 20)),
        pad_empty_(options.flag("pad_empty", false)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    if (o_.contiguous) return "contiguous has no effect here: the permutation writes its rows anew";
    return o_.illegal(layer, LayerSizes(layer));
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const int matrix = b.matrix(GroupKind::kEp, f.splits);
    TorchtitanSteps steps(b, layer, f, o_);
    std::vector<std::int64_t> padded = round_up_each(f.experts, multiple_);
    if (pad_empty_)
      for (std::int64_t& rows : padded) rows = std::max(rows, multiple_);
    steps.set_expert_rows(std::move(padded));
    const auto exchange = [&](std::string_view name, Category category, bool there) {
      b.all_to_all_v(name, category, layer.activation, matrix, !there, f.w);
    };
    const PerRank received = b.scaled(f.computed, f.w);
    steps.begin();
    if (f.ep > 1) exchange_counts(b, f);
    b.allocate("received rows", received);
    exchange("tokens", Category::dispatch, true);
    b.kernel("append sentinel row", Category::permute, KernelClass::kCopy, received,
             b.scaled(f.computed, f.w, f.w));
    steps.index_and_gather();
    b.free("received rows", received);
    steps.run_experts();
    steps.inverse_permute();
    b.kernel("strip sentinel row", Category::unpermute, KernelClass::kCopy, received, received);
    steps.return_rows(exchange);
    return finish(b, layer, f, steps.computed_rows());
  }

 private:
  TorchtitanOptions o_;
  std::int64_t multiple_;
  bool pad_empty_;
};

}  // namespace

DispatcherEntry torchtitan_torchao() {
  return {"torchtitan-torchao",
          "torchtitan with TorchAO: rows of an expert padded to a multiple after the exchange",
          make_dispatcher_of<TorchtitanTorchAo>};
}

}  // namespace moesim::models
