// torchtitan AlltoAll dispatcher, normal path (docs/spec.md 2.6): counts, one blocking read of the splits,
// rows; neither probabilities nor ids travel.
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

namespace {

class TorchtitanAllToAll final : public Dispatcher {
 public:
  explicit TorchtitanAllToAll(DispatcherOptions& options) : o_(options) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    return o_.illegal(layer);
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const int matrix = b.matrix(GroupKind::kEp, f.splits);
    TorchtitanSteps steps(b, layer, f, o_);
    const PerRank received = b.scaled(f.computed, f.w);
    b.begin(ProgramBuilder::Pass::kForward);
    steps.save_input();
    b.kernel("count rows per expert", Category::permute, KernelClass::kHistogram, b.scaled(f.sent, 8),
             b.uniform(f.E * 8));
    steps.sort_and_gather();
    steps.score(true);
    exchange_counts(b, f);
    b.allocate("received rows", received);
    b.all_to_all_v("tokens", Category::dispatch, layer.activation, matrix, false, f.w);
    steps.index_and_gather();
    b.free("received rows", received);
    steps.run_experts();
    steps.inverse_permute();
    b.all_to_all_v("tokens", Category::combine, layer.activation, matrix, true, f.w);
    steps.score(false);
    steps.scatter_add_back();
    steps.free_experts();
    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      steps.gather_gradient();
      b.all_to_all_v("output gradient", Category::combine, layer.activation, matrix, false, f.w);
      steps.inverse_permute_backward();
      steps.experts_backward_pass();
      steps.index_backward();
      b.all_to_all_v("hidden gradient", Category::dispatch, layer.activation, matrix, true, f.w);
      steps.input_gradient();
    }
    return finish(b, layer, f, steps.computed_rows());
  }

 private:
  TorchtitanOptions o_;
};

}  // namespace

DispatcherEntry torchtitan_alltoall() {
  return {"torchtitan-alltoall", "torchtitan AlltoAll: counts, one blocking read, rows; scores stay at home",
          make_dispatcher_of<TorchtitanAllToAll>};
}

}  // namespace moesim::models
