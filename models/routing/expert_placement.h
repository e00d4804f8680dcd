// Placement and replication of experts on ranks, as a routing over physical experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/routing/routing.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Limit on the slots of all ranks; the time of balancing grows with them.
inline constexpr int kMostSlots = 1 << 14;

// Physical experts in slots: slot s lies on rank s / (slots / ranks) and holds logical expert expert_of[s].
// Every expert has at least one slot; one with several is replicated.
struct ExpertPlacement {
  std::vector<std::int32_t> expert_of;
};

// Spreads load: each replica goes to the expert with the most rows per replica, then slots are assigned to
// ranks, heaviest first, each to the least loaded rank with a free slot (greedy, as expert-parallel load
// balancers do). `totals`: rows per expert; slots is a multiple of ranks and at least the number of experts.
// Throws InputError otherwise.
ExpertPlacement balanced_placement(const std::vector<std::int64_t>& totals, int ranks, int slots);

// Likewise with the experts of a group on one node, as DeepSeek's EPLB does: groups go to the nodes by load,
// equally many to each, then copies and experts within every node. Equals balanced_placement() where the
// nodes do not divide the groups, ranks and slots. Slots are in rank order, ranks in node order.
ExpertPlacement hierarchical_placement(const std::vector<std::int64_t>& totals, int ranks, int slots,
                                       int groups, int nodes);

// A placement as the user gives it: "balanced", "balanced:slots=72" (replicas fill the slots), or a list of
// the expert of each slot. Empty text: experts in order.
struct PlacementSpec {
  std::int64_t slots = 0;               // 0: one per expert
  std::vector<std::int32_t> expert_of;  // from a list; else balanced by load
  std::string text;

  bool given() const { return !text.empty(); }
  // Throws InputError for other text.
  static PlacementSpec parse(const std::string& text);
  static PlacementSpec parse(const JsonNode& node);  // a string as above, or a list
  // Throws InputError where slots and ranks do not match.
  ExpertPlacement make(const Routing& routing, int ranks) const;
};

// Returns the routing with slots in place of experts. Rows of a replicated expert are spread evenly over its
// slots, starting with a different one on every source rank. Throws InputError for an expert without a slot.
Routing placed(const Routing& routing, const ExpertPlacement& placement);

}  // namespace moesim::models
