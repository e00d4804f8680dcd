// Expert tensor parallelism as a dispatcher (docs/spec.md 2.1.3): every rank of the group holds a slice of
// the inner size of every expert instead of whole experts. Tokens are gathered, every rank computes its slice
// for all of them, and outputs are reduce-scattered: Megatron's AllGather with EP 1 and ETP R, on the plan's
// own groups. Weights, gradients and optimizer states per rank are the same as with whole experts.
#include <fmt/format.h>

#include "models/dispatchers/parts/all_gather.h"

namespace moesim::models {

namespace {

class ExpertTp final : public AllGather {
 public:
  using AllGather::AllGather;

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.ep == 1)
      return "with ep 1 the plan itself splits every expert over the group: that is allgather with etp";
    if (layer.placed) return "every rank holds a slice of every expert: there is no placement";
    if (layer.expert_ffn % layer.ranks() != 0)
      return fmt::format("etp x ep = {} must divide the experts' inner size {}: a rank holds a slice of each",
                         layer.ranks(), layer.expert_ffn);
    return AllGather::illegal(layer);
  }

  bool splits_experts() const override { return true; }

  Program build(const MoeLayer& given) const override {
    MoeLayer layer = given;
    layer.ep = 1;
    layer.etp = given.ranks();
    return AllGather::build(layer);
  }
};

}  // namespace

DispatcherEntry expert_tp() {
  return {"expert-tp", "Expert tensor parallelism: a slice of every expert on every rank, tokens gathered",
          make_dispatcher_of<ExpertTp>};
}

}  // namespace moesim::models
