// Runs a graph whose tasks influence each other: an event queue with rates that change as other tasks start
// and end.
#pragma once

#include <vector>

#include "sim/graph/task_graph.h"
#include "sim/run/prices.h"
#include "sim/run/simulator.h"
#include "sim/run/task_times.h"
#include "sim/run/timeline.h"

namespace moesim::sim {

// Longest path through a task graph: runs a graph without shared resources, in which tasks can be timed in
// any topological order without an event queue.

// Times every reachable task; the others keep kNotYet (a deadlock). Timing `calibrated`.
TaskTimes longest_path(const TaskGraph& graph, const Prices& prices);

struct EventsResult {
  TaskTimes times;
  std::vector<LinkUse> links;  // with timing `flow`; utilisation not filled in yet
};

// Timing `calibrated` or `flow`. Times every reachable task; the others keep kNotYet (a deadlock). Without
// overlap and with timing `calibrated` the times equal those of longest_path().
//
// Computing and communicating at the same time slow each other down by the factors of Prices::overlap: a
// compute task by `compute` during a transfer of its rank; a transfer by `communication` while its rank
// computes. Under `flow` the latter divides the cap of the rank's flow (or the rate that its links would give
// it alone) by that factor, so that a flow bound more tightly by the network is not slowed twice.
EventsResult run_events(const TaskGraph& graph, const Prices& prices, const RunOptions& options);

}  // namespace moesim::sim
