// Which rank holds which expert: placement and replication, as a routing over physical experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/routing/routing.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Slots of all ranks; the time of balancing grows with them.
inline constexpr int kMostSlots = 1 << 14;

// Physical experts in slots: slot s lies on rank s / (slots / ranks) and holds logical expert expert_of[s].
// Every expert has at least one slot; one with several is replicated.
struct ExpertPlacement {
  std::vector<std::int32_t> expert_of;
};

// Spreads load: replicas go one by one to the expert with the most rows per replica, then slots are dealt out
// to ranks from the heaviest on, each to the rank with the least load that has a slot free (greedy, as load
// balancers of expert parallelism do). `totals` are rows per expert; slots is a multiple of ranks and at
// least the number of experts. Throws InputError otherwise.
ExpertPlacement balanced_placement(const std::vector<std::int64_t>& totals, int ranks, int slots);

// The same with the experts of a group on one node, as DeepSeek's EPLB deals them out: groups go to the nodes
// by their load, equally many to each, then copies and experts within every node. Where the nodes do not
// divide the groups, ranks and slots, balanced_placement(). Slots are in the order of ranks, ranks in that of
// nodes.
ExpertPlacement hierarchical_placement(const std::vector<std::int64_t>& totals, int ranks, int slots,
                                       int groups, int nodes);

// How a user asks for it: "balanced", "balanced:slots=72" (replicas fill the slots), or a list of the expert
// of each slot. Empty text: experts lie in order.
struct PlacementSpec {
  std::int64_t slots = 0;               // 0: one per expert
  std::vector<std::int32_t> expert_of;  // a list; else balanced by load
  std::string text;

  bool given() const { return !text.empty(); }
  // Throws InputError for anything else.
  static PlacementSpec parse(const std::string& text);
  static PlacementSpec parse(const JsonNode& node);  // a string as above, or a list
  // Throws InputError where slots and ranks do not fit.
  ExpertPlacement make(const Routing& routing, int ranks) const;
};

// The routing with slots in place of experts. Rows of a replicated expert are dealt out evenly to its slots,
// starting with another one on every source rank. Throws InputError for an expert without a slot.
Routing placed(const Routing& routing, const ExpertPlacement& placement);

}  // namespace moesim::models
