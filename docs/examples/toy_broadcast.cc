// A toy: every rank sends all its tokens to every other rank, without asking who needs them.
#include "models/dispatchers/parts/common.h"

namespace moesim::models {

namespace {

class ToyBroadcast final : public Dispatcher {
 public:
  explicit ToyBroadcast(DispatcherOptions& options) : fp8_(options.flag("fp8", false)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (!layer.routing->equal_tokens()) return "every rank must hold the same number of tokens";
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);  // row counts of the routing, sizes of the layer
    const std::int64_t row = fp8_ ? f.H : f.w;
    ProgramBuilder b(layer.ep, layer.etp);
    const ExpertBlock experts = expert_block(layer, f, b);

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("expert input", b.scaled(f.computed, f.w));
    b.all_gather(GroupKind::kTpEp, "tokens", Category::dispatch, fp8_ ? DType::kFp8 : layer.activation,
                 f.T() * row);
    gather_rows(b, "pick local rows", Category::permute, f.computed, f.w);
    experts_forward(b, experts);
    b.reduce_scatter(GroupKind::kTpEp, "output", Category::combine, layer.activation, f.T() * f.w);
    free_expert_output(b, experts);

    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      b.all_gather(GroupKind::kTpEp, "output gradient", Category::combine, layer.activation, f.T() * f.w);
      experts_backward(b, experts);
      b.reduce_scatter(GroupKind::kTpEp, "hidden gradient", Category::dispatch, layer.activation,
                       f.T() * f.w);
    }
    return finish(b, layer, f, f.computed);
  }

 private:
  bool fp8_;
};

}  // namespace

DispatcherEntry toy_broadcast() {
  return {"toy-broadcast", "A toy: all tokens to all ranks", make_dispatcher_of<ToyBroadcast>};
}

}  // namespace moesim::models
