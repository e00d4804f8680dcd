// Collectives whose members advance in step, as one flow: rings, trees, hierarchies and reducing switches
// load all their links in fixed proportions, so one rate determines the progress of the whole collective.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/graph/costs.h"
#include "sim/network/fabric.h"
#include "sim/network/flows.h"
#include "sim/network/router.h"

namespace moesim::sim {

struct StepFlow {
  std::vector<LinkShare> shares;  // by link; the most loaded connection has factor 1 on each of its links
  double bytes = 0;               // over that connection
  double cap = 0;                 // bytes per second; 0: none
  std::uint32_t steps = 0;        // latencies in sequence
  Time latency;                   // of the longest connection
  std::vector<std::uint32_t> unreachable;  // two members without a route between them, or empty
};

// Returns the flow of any operation but all_to_all. Members of one domain of the fabric are adjacent; with k
// members in each of several domains, k rings (trees) share the bytes and cross between domains at different
// members, as NCCL's channels do. hierarchical: rings inside the domains and between members with equal
// positions in their domains, at the same time (domains of unequal size fall back to ring). nvls: inside a
// domain the first switch on the route gathers, reduces and multicasts; between domains as hierarchical.
// Edges of AG-V and RS-V carry the sum of all pieces but one.
StepFlow step_flow(const CollectiveShape& shape, const FlowParameters& plan, const Fabric& fabric,
                   Router& router);

}  // namespace moesim::sim
