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
  calibrated,  // collectives take the time of Costs::price_collective
  flow,        // collectives become flows that share the fabric's links, max-min fair
};

enum class Detail : std::uint8_t {
  full,       // summaries per rank; start, end and cause of every task
  times,      // the latter alone
  aggregate,  // summaries per rank only
};

struct RunOptions {
  Timing timing = Timing::calibrated;
  Detail detail = Detail::full;
  const Fabric* fabric = nullptr;  // required for `flow`; rank i is the fabric's GPU i
  // For `flow`: zero solves the fair rates at every instant; a positive fraction uses windows
  // (WindowedFlowNetwork).
  double flow_window = 0.0;
  Router* router =
      nullptr;  // for `flow`: a router of the fabric shared by several runs; null: created for the run
};

// Returns the timeline of `graph`, the same on every machine for equal graph, costs and options. Throws
// Deadlock when the graph cannot finish, and InputError when the fabric has too few GPUs or no route between
// two communicating ranks.
Timeline run(const TaskGraph& graph, const Costs& costs, const RunOptions& options = {});

}  // namespace moesim::sim
