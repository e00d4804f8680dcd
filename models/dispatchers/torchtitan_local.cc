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
    return o_.illegal(layer, LayerSizes(layer));
  }

  Program build(const MoeLayer& layer) const override { return torchtitan_local_program(layer, o_); }

 private:
  TorchtitanOptions o_;
};

}  // namespace

DispatcherEntry torchtitan_local() {
  return {"torchtitan-local", "torchtitan without expert parallelism: sort, gather, experts, scatter_add",
          make_dispatcher_of<Local>};
}

}  // namespace moesim::models
