// Runs a task graph.
#pragma once

#include <cstdint>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"
#include "sim/run/timeline.h"

namespace moesim::sim {

class Fabric;
class Router;

enum class Timing : std::uint8_t {
  calibrated,  // collectives take what Costs::price_collective says
  flow,        // collectives become flows that share the fabric's links, max-min fair
};

enum class Detail : std::uint8_t {
  full,       // start, end and cause of every task
  aggregate,  // summaries per rank only
};

struct RunOptions {
  Timing timing = Timing::calibrated;
  Detail detail = Detail::full;
  const Fabric* fabric = nullptr;  // needed by `flow`; rank i is the fabric's GPU i
  // Of `flow`: zero solves the fair rates at every instant; see FlowNetwork for what a positive fraction
  // does.
  double flow_window = 0.0;
  Router* router =
      nullptr;  // of `flow`: one of the fabric's that several runs share; null: one of the run's own
};

// The timeline of `graph`. The same graph, costs and options give the same timeline on every machine.
// Throws Deadlock when the graph cannot finish, and InputError when the fabric has too few GPUs or no way
// between two ranks that talk.
Timeline run(const TaskGraph& graph, const Costs& costs, const RunOptions& options = {});

}  // namespace moesim::sim
