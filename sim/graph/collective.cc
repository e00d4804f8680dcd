#include "sim/graph/collective.h"

namespace moesim::sim {

std::string_view name(CollectiveOp op) {
  static constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                                "broadcast",  "send_recv",      "barrier"};
  return kNames[static_cast<std::size_t>(op)];
}

}  // namespace moesim::sim
