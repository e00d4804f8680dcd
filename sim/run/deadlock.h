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

// A stuck stream of a rank.
struct StuckStream {
  RankId rank;
  StreamId stream;
  TaskId task;  // the first task of the stream that has not ended
  std::string label;
  std::uint32_t origin;           // of the task; Id::kNone without one
  std::string reason;             // "waits in all_to_all 'dispatch' for rank 3, which stands at ..."
  std::vector<TaskId> waits_for;  // tasks that must end or start first
};

// Thrown by run(). what() explains it in several lines: the first names the kind of deadlock (a cycle, a
// missing member), the others the ranks involved.
class Deadlock : public std::runtime_error {
 public:
  Deadlock(const std::string& explanation, std::vector<StuckStream> streams)
      : std::runtime_error(explanation), streams_(std::move(streams)) {}

  // Returns the streams that cause it first (a cycle in order, or those that wait for a missing member), then
  // those that wait behind them.
  const std::vector<StuckStream>& streams() const { return streams_; }

 private:
  std::vector<StuckStream> streams_;
};

// Explains why a run stopped before every task had ended.

// `times`: of a stuck run, in which at least one task has not ended.
Deadlock find_deadlock(const TaskGraph& graph, const TaskTimes& times);

}  // namespace moesim::sim
