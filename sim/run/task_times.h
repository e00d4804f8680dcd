// The raw result of a run, before it becomes a Timeline.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/graph/task_graph.h"
#include "sim/graph/time.h"

namespace moesim::sim {

// The reason why a task did not start earlier.
enum class Cause : std::uint8_t {
  none,        // it started at time zero
  stream,      // the previous task on its stream
  dependency,  // a dependency
  host,        // a dependency on a host task
  rendezvous,  // (of a transfer) the last member to arrive
};
std::string_view name(Cause cause);

inline constexpr Time kNotYet = Time::from_ps(-1);

struct TaskTimes {
  TaskTimes() = default;
  explicit TaskTimes(const TaskGraph& graph);

  // `before` has ended at `when`: `task` cannot start earlier. At equal times the previous task on the stream
  // is the cause, then the lower id, independent of the order of these calls.
  void wait_for(TaskId task, TaskId before, Time when, Cause why) {
    const std::size_t i = index(task);
    const bool later =
        when > start[i] ||
        (when == start[i] && (cause[i] == Cause::none || (cause[i] != Cause::stream &&
                                                          (why == Cause::stream || before < cause_task[i]))));
    if (!later) return;
    start[i] = when;
    cause[i] = why;
    cause_task[i] = before;
  }

  // `member` has started at `when`; the transfer cannot begin earlier.
  void arrive(CollectiveId collective, TaskId member, Time when) {
    const std::size_t c = index(collective);
    const bool later =
        !last_arrival[c].valid() || when > begin[c] || (when == begin[c] && member < last_arrival[c]);
    if (!later) return;
    begin[c] = when;
    last_arrival[c] = member;
  }

  std::vector<Time> start;  // for a task that has not started: the earliest start known so far
  std::vector<Time> end;    // kNotYet until the task has ended
  std::vector<Cause> cause;
  std::vector<TaskId> cause_task;
  std::vector<Time> begin;  // start of a collective's transfer
  std::vector<TaskId> last_arrival;
};

// Returns why a task waits for its dependency `before`.
inline Cause cause_of_dependency(const TaskGraph& graph, TaskId before) {
  return graph.kind(before) == TaskKind::host ? Cause::host : Cause::dependency;
}

}  // namespace moesim::sim
