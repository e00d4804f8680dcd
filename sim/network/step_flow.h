// Collectives whose members advance in step, as one flow: rings, trees, hierarchies and switches that reduce
// load every link they use in fixed proportions, so one rate says how fast the whole collective goes.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/graph/costs.h"
#include "sim/network/fabric.h"
#include "sim/network/flows.h"
#include "sim/network/router.h"

namespace moesim::sim {

struct StepFlow {
  std::vector<LinkShare> shares;  // by link; the most loaded connection has factor 1 per link it uses
  double bytes = 0;               // over that connection
  double cap = 0;                 // bytes per second; 0: none
  std::uint32_t steps = 0;        // latencies in sequence
  Time latency;                   // of the longest connection
  std::vector<std::uint32_t> unreachable;  // two members without a way between them, or empty
};

// Of every operation but all_to_all. Members of one domain of the fabric are kept together; with k members in
// each of several domains k rings (trees) share the bytes and cross between domains at different members, as
// NCCL's channels do. hierarchical: rings inside the domains and between the members of equal place in their
// domains, at the same time (domains of unequal size fall back to ring). nvls: inside a domain the first
// switch on the way gathers, reduces and multicasts; between domains as hierarchical. Edges of AG-V and RS-V
// carry the sum of the pieces but one.
StepFlow step_flow(const CollectiveShape& shape, const FlowPlan& plan, const Fabric& fabric, Router& router);

}  // namespace moesim::sim
