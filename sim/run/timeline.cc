#include "sim/run/timeline.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sim/run/booking.h"

namespace moesim::sim {

std::string_view name(Cause cause) {
  static constexpr std::string_view kNames[] = {"none", "stream", "dependency", "host", "rendezvous"};
  return kNames[static_cast<std::size_t>(cause)];
}

TaskTimes::TaskTimes(const TaskGraph& graph)
    : start(graph.task_count()),
      end(graph.task_count(), kNotYet),
      cause(graph.task_count(), Cause::none),
      cause_task(graph.task_count()),
      begin(graph.collective_count()),
      last_arrival(graph.collective_count()) {}

namespace {

void add_task(const TaskGraph& graph, const TaskTimes& times, TaskId task, std::vector<BusySpan>& spans) {
  const Time start = times.start[index(task)];
  const Time end = times.end[index(task)];
  const auto add = [&](Time from, Time to, Activity activity) {
    spans.push_back({from, to, activity, graph.label(task).category, task.value()});
  };
  switch (graph.kind(task)) {
    case TaskKind::compute:
      add(start, end, Activity::computing);
      break;
    case TaskKind::delay:
    case TaskKind::host:
      add(start, end, Activity::host);
      break;
    case TaskKind::member: {
      const CollectiveId collective = graph.collective(task);
      const Time begin = times.begin[index(collective)];
      const bool peer = graph.shape(collective).op == CollectiveOp::send_recv;
      add(start, begin, peer ? Activity::peer : Activity::straggling);
      add(begin, end, Activity::transferring);
      break;
    }
  }
}

}  // namespace

Timeline::Timeline(const TaskGraph& graph, TaskTimes&& times, bool books, bool keep_tasks,
                   std::vector<LinkUse> links)
    : ranks_(graph.rank_count()), links_(std::move(links)) {
  const auto tasks = static_cast<std::uint32_t>(graph.task_count());
  std::vector<std::uint32_t> rank_begin(graph.rank_count() + 1);
  for (std::uint32_t i = 0; i < tasks; ++i) {
    const TaskId task(i);
    RankSummary& rank = ranks_[index(graph.rank(task))];
    rank.end = std::max(rank.end, times.end[i]);
    ++rank_begin[index(graph.rank(task)) + 1];
  }
  for (std::size_t rank = 0; rank < graph.rank_count(); ++rank) {
    rank_begin[rank + 1] += rank_begin[rank];
    if (ranks_[rank].end > iteration_ || rank == 0) {
      iteration_ = ranks_[rank].end;
      critical_rank_ = RankId(static_cast<std::uint32_t>(rank));
    }
  }
  std::vector<TaskId> by_rank(tasks);
  {
    std::vector<std::uint32_t> place(rank_begin.begin(), rank_begin.end() - 1);
    for (std::uint32_t i = 0; i < tasks; ++i) by_rank[place[index(graph.rank(TaskId(i)))]++] = TaskId(i);
  }
  std::vector<BusySpan> spans;
  for (std::size_t rank = 0; books && rank < graph.rank_count(); ++rank) {
    spans.clear();
    for (std::uint32_t i = rank_begin[rank]; i < rank_begin[rank + 1]; ++i)
      add_task(graph, times, by_rank[i], spans);
    book(spans, iteration_, ranks_[rank]);
  }
  if (keep_tasks) tasks_ = std::move(times);
}

void Timeline::scale(double factor) {
  const auto scaled = [&](Time time) {
    return Time::from_ps(std::llround(static_cast<double>(time.ps()) * factor));
  };
  iteration_ = scaled(iteration_);
  for (auto* times : {&tasks_.start, &tasks_.end, &tasks_.begin})
    std::ranges::transform(*times, times->begin(), scaled);
}

std::vector<PathStep> Timeline::critical_path(const TaskGraph& graph) const {
  check(has_tasks() || graph.task_count() == 0, "a critical path needs Detail::full");
  std::vector<PathStep> path;
  TaskId task;
  for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
    if (!task.valid() || tasks_.end[i] > end(task)) task = TaskId(i);
  }
  Time to = iteration_;
  while (task.valid()) {
    if (graph.kind(task) == TaskKind::member) {
      const CollectiveId collective = graph.collective(task);
      const TaskId last = last_arrival(collective);
      path.push_back({task, begin(collective), to, last == task ? cause(task) : Cause::rendezvous});
      to = begin(collective);
      task = last;
    } else {
      path.push_back({task, start(task), to, cause(task)});
      to = start(task);
    }
    task = cause_task(task);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace moesim::sim
