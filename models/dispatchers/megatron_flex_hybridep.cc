// Megatron Flex dispatcher, HybridEP back end (docs/spec.md 2.4).
#include "models/dispatchers/parts/deduplicated.h"

namespace moesim::models {

namespace {

class FlexHybridEp final : public FlexHybrid {
 public:
  explicit FlexHybridEp(DispatcherOptions& options) : FlexHybrid(options, ExchangeLibrary::kHybridEp) {}
};

}  // namespace

DispatcherEntry megatron_flex_hybridep() {
  return {"flex-hybridep", "Megatron Flex with HybridEP: map all-gather, fused permutation, static budgets",
          make_dispatcher_of<FlexHybridEp>};
}

}  // namespace moesim::models
