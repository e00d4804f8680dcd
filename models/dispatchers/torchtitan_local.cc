// torchtitan without expert parallelism (docs/spec.md 2.5): sort, gather, experts, scatter_add; no
// collective and no host sync.
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

namespace {

class Local final : public Dispatcher {
 public:
  explicit Local(DispatcherOptions& options) : o_(options) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.ep > 1) return "it is for ep 1: every rank holds all experts";
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    return o_.illegal(layer);
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    TorchtitanSteps steps(b, layer, f, o_);
    b.begin(ProgramBuilder::Pass::kForward);
    steps.save_input();
    steps.sort_and_gather();
    steps.score(true);
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

 private:
  TorchtitanOptions o_;
};

}  // namespace

DispatcherEntry torchtitan_local() {
  return {"torchtitan-local", "torchtitan without expert parallelism: sort, gather, experts, scatter_add",
          make_dispatcher_of<Local>};
}

}  // namespace moesim::models
