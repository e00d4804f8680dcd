// Megatron Flex dispatcher, NCCL EP back end in its high-throughput mode (docs/spec.md 2.4): HybridEP's
// program with top-k indices and weights beside every row, over NCCL's own transport.
#include "models/dispatchers/parts/deduplicated.h"

namespace moesim::models {

namespace {

class NcclEp final : public FlexHybrid {
 public:
  explicit NcclEp(DispatcherOptions& options) : FlexHybrid(options, ExchangeLibrary::kNcclEp) {}
};

}  // namespace

DispatcherEntry megatron_nccl_ep() {
  return {"nccl-ep", "Megatron Flex with NCCL EP: HybridEP's kernels over NCCL, exact or static sizes",
          make_dispatcher_of<NcclEp>};
}

}  // namespace moesim::models
