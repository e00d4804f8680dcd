// Programs as a task graph, for the simulator: where the network is shared, collectives of several dispatch
// groups contend, and their times are not known before (timing `flow`).
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

// The passes one after the other on dispatch groups that all do the same at the same time: rank r of group c
// is rank groups[c][r] of the graph, GPU of the cluster; ranks that no group names have nothing to do. Every
// operation is launched by its rank's host, which takes launch_ps per kernel; a blocking wait is a host task
// behind its copy. Durations of what computes are the prices; collectives carry their bytes, those that
// travel inside another one (Op::fused) added to it. A collective whose group the dispatch group does not
// hold whole takes its price. What comes first in a pass waits for everything that its rank did in the one
// before.
sim::TaskGraph layer_graph(std::span<const PricedPass> passes, std::int64_t launch_ps,
                           std::span<const std::vector<std::int32_t>> groups);

}  // namespace moesim::models
