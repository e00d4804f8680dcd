// Programs as a task graph for the simulator, for shared networks: collectives of several dispatch groups
// contend, so their times are not known in advance (timing `flow`).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/programs/program.h"
#include "sim/graph/task_graph.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// A pass of a program with its prices.
struct PricedPass {
  const Program* program = nullptr;
  const std::vector<Op>* ops = nullptr;
  const sim::LockstepProgram* priced = nullptr;
};

// Returns a graph of the passes, one after the other, on dispatch groups that all do the same at the same
// time: rank r of group c is rank groups[c][r] of the graph, a GPU of the cluster; ranks in no group are
// idle. A rank's host launches every operation and takes launch_ps per kernel; a blocking wait is a host task
// behind its copy. Computing takes its price; collectives carry their bytes and those that travel inside them
// (Op::fused). A collective whose group lies partly outside of the dispatch group takes its price. The first
// operations of a pass wait for everything that their rank did in the previous one.
sim::TaskGraph layer_graph(std::span<const PricedPass> passes, std::int64_t launch_ps,
                           std::span<const std::vector<std::int32_t>> groups);

}  // namespace moesim::models
