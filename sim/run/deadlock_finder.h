// Explains why a run stopped before every task had ended.
#pragma once

#include "sim/graph/task_graph.h"
#include "sim/run/deadlock.h"
#include "sim/run/task_times.h"

namespace moesim::sim {

// `times`: of a stuck run, in which at least one task has not ended.
Deadlock find_deadlock(const TaskGraph& graph, const TaskTimes& times);

}  // namespace moesim::sim
