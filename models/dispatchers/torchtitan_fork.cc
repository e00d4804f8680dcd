// torchtitan fork as a whole (docs/spec.md 2.7, 2.8, 2.10): the local dispatcher without an exchange, the
// fast path where the router is forced to balance, and else the normal path with padding by policy (off
// upstream); experts, scores and scatter_add as the fork chooses them.
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

DispatcherEntry torchtitan_fork() {
  return {"torchtitan-fork", "torchtitan fork as a whole: its paths, experts and types, chosen as it does",
          [](DispatcherOptions& options) {
            return options.flag("force_load_balance", false)
                       ? torchtitan_forced_path(options, Torchtitan::kWholeFork)
                       : torchtitan_equal_path(options, Torchtitan::kWholeFork);
          }};
}

}  // namespace moesim::models
