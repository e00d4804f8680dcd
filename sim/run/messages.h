// Collectives message by message, where no two messages share a link: every message takes its latency and its
// bytes over the bandwidth of one connection.
#pragma once

#include <vector>

#include "sim/graph/costs.h"

namespace moesim::sim {

// For every member, the time from the last arrival to its end. A message starts when its sender and its
// receiver have both come to the step it belongs to (rendezvous), and a member goes on to the next step when
// all its messages of this one are done. Messages of a step are made when the step is, so that g members need
// O(g) memory.
//
// Steps by algorithm: pairwise g-1 (to member i+s, from member i-s); ring g-1, all_reduce 2(g-1) (to the next
// member, from the one before); direct 1 (all messages at once, each at full bandwidth); tree: up and down a
// binary tree rooted at member 0. hierarchical and nvls, which only a fabric can tell apart, are timed as
// ring and direct.
void message_times(const CollectiveShape& shape, const FlowPlan& plan, std::vector<Time>& out);

}  // namespace moesim::sim
