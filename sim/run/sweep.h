// Longest path through a task graph: the run of a graph in which nothing shares a resource with anything
// else, so that tasks can be timed in any order that respects their dependencies, without a queue of events.
#pragma once

#include "sim/graph/task_graph.h"
#include "sim/run/prices.h"
#include "sim/run/task_times.h"

namespace moesim::sim {

// Times every task that can be reached; the others keep kNotYet (a deadlock). Timing `calibrated`.
TaskTimes sweep(const TaskGraph& graph, const Prices& prices);

}  // namespace moesim::sim
