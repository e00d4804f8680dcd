#include "sim/graph/collective.h"

namespace moesim::sim {

std::string_view name(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::all_gather:
      return "all_gather";
    case CollectiveOp::reduce_scatter:
      return "reduce_scatter";
    case CollectiveOp::all_reduce:
      return "all_reduce";
    case CollectiveOp::all_to_all:
      return "all_to_all";
    case CollectiveOp::broadcast:
      return "broadcast";
    case CollectiveOp::send_recv:
      return "send_recv";
    case CollectiveOp::barrier:
      return "barrier";
  }
  return "?";
}

std::string_view name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::ring:
      return "ring";
    case Algorithm::tree:
      return "tree";
    case Algorithm::pairwise:
      return "pairwise";
    case Algorithm::direct:
      return "direct";
    case Algorithm::hierarchical:
      return "hierarchical";
    case Algorithm::nvls:
      return "nvls";
  }
  return "?";
}

}  // namespace moesim::sim
