// MegaBlocks dMoE with block-sparse products (docs/spec.md 2.12): dropless, each expert padded to whole
// blocks.
#include <fmt/format.h>

#include "models/dispatchers/parts/megablocks.h"

namespace moesim::models {

namespace {

class MegablocksDmoeSparse final : public Dispatcher {
 public:
  explicit MegablocksDmoeSparse(DispatcherOptions& options)
      : o_(options), block_(options.integer("block", 128, 1, 1 << 16)) {}

  bool splits_experts() const override { return true; }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (auto rule = o_.illegal(layer)) return rule;
    const std::int64_t F_pr = layer.expert_ffn / std::max(1, layer.ep / layer.experts());
    if (F_pr % block_ != 0)
      return fmt::format("the experts' inner size on a rank must be a multiple of the block of {}, here {}",
                         block_, F_pr);
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    const MegablocksFigures f(layer);
    MegablocksCompute compute;
    compute.rows = round_up_each(f.experts, block_);
    compute.sync_padded = true;
    compute.topology = true;
    compute.block = block_;
    return megablocks_program(layer, o_, f, compute);
  }

 private:
  MegablocksOptions o_;
  std::int64_t block_;
};

}  // namespace

DispatcherEntry megablocks_dmoe_sparse() {
  return {"megablocks-dmoe-sparse",
          "MegaBlocks dMoE: dropless, block-sparse products over blocks of 128 rows",
          make_dispatcher_of<MegablocksDmoeSparse>};
}

}  // namespace moesim::models
