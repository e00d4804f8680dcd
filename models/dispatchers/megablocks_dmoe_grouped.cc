// MegaBlocks dMoE with grouped GEMMs (docs/spec.md 2.12): dropless, unpadded, counts already on the host.
#include "models/dispatchers/parts/megablocks.h"

namespace moesim::models {

namespace {

class MegablocksDmoeGrouped final : public Dispatcher {
 public:
  explicit MegablocksDmoeGrouped(DispatcherOptions& options) : o_(options) {}

  bool splits_experts() const override { return true; }
  std::optional<std::string> illegal(const MoeLayer& layer) const override { return o_.illegal(layer); }

  Program build(const MoeLayer& layer) const override {
    const MegablocksFigures f(layer, o_);
    MegablocksCompute compute;
    compute.rows = f.experts;
    compute.sync_counts = f.W == 1;  // with expert parallelism the exchange's counts are already there
    return megablocks_program(layer, o_, f, compute);
  }

 private:
  MegablocksOptions o_;
};

}  // namespace

DispatcherEntry megablocks_dmoe_grouped() {
  return {"megablocks-dmoe-grouped", "MegaBlocks dMoE: dropless, grouped GEMMs over unpadded rows",
          make_dispatcher_of<MegablocksDmoeGrouped>};
}

}  // namespace moesim::models
