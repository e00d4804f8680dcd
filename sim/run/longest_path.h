// Longest path through a task graph: runs a graph without shared resources, in which tasks can be timed in
// any topological order without an event queue.
#pragma once

#include "sim/graph/task_graph.h"
#include "sim/run/prices.h"
#include "sim/run/task_times.h"

namespace moesim::sim {

// Times every reachable task; the others keep kNotYet (a deadlock). Timing `calibrated`.
TaskTimes longest_path(const TaskGraph& graph, const Prices& prices);

}  // namespace moesim::sim
