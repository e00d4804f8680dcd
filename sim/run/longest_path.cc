#include "sim/run/longest_path.h"

namespace moesim::sim {

namespace {

class LongestPath {
 public:
  LongestPath(const TaskGraph& graph, const Prices& prices)
      : graph_(graph), prices_(prices), times_(graph), arrived_(graph.collective_count()) {
    const std::size_t tasks = graph.task_count();
    waiting_for_.resize(tasks);
    for (std::uint32_t i = 0; i < tasks; ++i) {
      waiting_for_[i] = graph.predecessor_count(TaskId(i));
      if (waiting_for_[i] == 0) ready_.push_back(TaskId(i));
    }
  }

  TaskTimes run() {
    while (!ready_.empty()) {
      const TaskId task = ready_.back();
      ready_.pop_back();
      if (graph_.kind(task) == TaskKind::member) {
        arrive(task);
      } else {
        end(task, times_.start[index(task)] + prices_.work[index(graph_.work(task))]);
      }
    }
    return std::move(times_);
  }

 private:
  void arrive(TaskId task) {
    const CollectiveId collective = graph_.collective(task);
    times_.arrive(collective, task, times_.start[index(task)]);
    const auto members = graph_.members(collective);
    if (++arrived_[index(collective)] < members.size()) return;
    const Time begin = times_.begin[index(collective)];
    const auto durations = prices_.members(graph_.shape_index(collective));
    for (std::size_t i = 0; i < members.size(); ++i) end(members[i], begin + durations[i]);
  }

  void end(TaskId task, Time when) {
    times_.end[index(task)] = when;
    for (const TaskId after : graph_.successors(task))
      release(after, task, when, cause_of_dependency(graph_, task));
    if (const TaskId next = graph_.next_on_stream(task); next.valid())
      release(next, task, when, Cause::stream);
  }

  void release(TaskId task, TaskId before, Time when, Cause why) {
    times_.wait_for(task, before, when, why);
    if (--waiting_for_[index(task)] == 0) ready_.push_back(task);
  }

  const TaskGraph& graph_;
  const Prices& prices_;
  TaskTimes times_;
  std::vector<std::uint32_t> arrived_;      // members per collective
  std::vector<std::uint32_t> waiting_for_;  // predecessors per task
  std::vector<TaskId> ready_;
};

}  // namespace

TaskTimes longest_path(const TaskGraph& graph, const Prices& prices) {
  return LongestPath(graph, prices).run();
}

}  // namespace moesim::sim
