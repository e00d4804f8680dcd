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
    if (layer.ep > 1 && o_.contiguous)
      return "contiguous has no effect behind an exchange: the permutation writes its rows anew";
    return o_.illegal(layer, LayerSizes(layer));
  }

  // Without a group of several ranks torchtitan's dispatcher delegates to the local one.
  bool balances() const override { return true; }

  Program build(const MoeLayer& layer) const override {
    return layer.ep == 1 ? torchtitan_local_program(layer, o_)
                         : torchtitan_normal_program(layer, LayerSizes(layer), o_);
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
