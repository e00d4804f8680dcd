// The run of a graph whose tasks influence each other: a queue of events in which rates change as others come
// and go.
#pragma once

#include <vector>

#include "sim/graph/task_graph.h"
#include "sim/run/prices.h"
#include "sim/run/simulator.h"
#include "sim/run/task_times.h"
#include "sim/run/timeline.h"

namespace moesim::sim {

struct EventsResult {
  TaskTimes times;
  std::vector<LinkUse> links;  // of timing `flow`; utilisation not filled in yet
};

// Timing `calibrated` or `flow`. Times every task that can be reached; the others keep kNotYet (a deadlock).
// Where nothing overlaps and timing is `calibrated` the times are those of sweep().
//
// Computing and communicating at the same time slow each other down by the factors of Prices::overlap: a
// compute task by `compute` while a transfer of its rank is going on; a transfer by `communication` while its
// rank computes. Under `flow` the latter lowers the most that a flow of the rank may take (its cap, or what
// its links would give it alone) by that factor, so that a flow which the network holds back further is not
// slowed twice.
EventsResult run_events(const TaskGraph& graph, const Prices& prices, const RunOptions& options);

}  // namespace moesim::sim
