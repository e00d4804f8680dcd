// A graph that cannot finish: the stuck ranks, their tasks, and what they wait for.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/graph/ids.h"
#include "sim/graph/task_graph.h"
#include "sim/run/task_times.h"

namespace moesim::sim {

// Thrown by run(). what() explains it in several lines: the first names the kind of deadlock (a cycle, a
// missing member), the others the ranks involved.
class Deadlock : public std::runtime_error {
 public:
  Deadlock(const std::string& explanation, std::vector<std::uint32_t> origins)
      : std::runtime_error(explanation), origins_(std::move(origins)) {}

  // Returns the origin (TaskGraph) of the first task of every stuck stream: of those that cause it first (a
  // cycle in order, or those that wait for a missing member), then of those that wait behind them.
  const std::vector<std::uint32_t>& origins() const { return origins_; }

 private:
  std::vector<std::uint32_t> origins_;
};

// Explains why a run stopped before every task had ended.

// `times`: of a stuck run, in which at least one task has not ended.
Deadlock find_deadlock(const TaskGraph& graph, const TaskTimes& times);

}  // namespace moesim::sim
