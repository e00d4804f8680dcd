// Megatron AllGather dispatcher, current version (docs/spec.md 2.1.1).
#include "models/dispatchers/parts/all_gather.h"

namespace moesim::models {

DispatcherEntry megatron_allgather() {
  return {"allgather", "Megatron AllGather: every rank gets all tokens, partial outputs are reduce-scattered",
          make_dispatcher_of<AllGather>};
}

}  // namespace moesim::models
