#include "sim/run/events.h"

#include <algorithm>
#include <optional>

#include "sim/network/fabric.h"
#include "sim/run/event_queue.h"
#include "sim/run/flow_collectives.h"
#include "sim/run/prices.h"

namespace moesim::sim {

namespace {

// Both executors derive from it: it starts a task when all tasks before it have ended.
class Tasks {
 protected:
  Tasks(const TaskGraph& graph, const Prices& prices)
      : graph_(graph),
        prices_(prices),
        times_(graph),
        arrived_(graph.collective_count()),
        waiting_for_(graph.task_count()) {
    for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
      waiting_for_[i] = graph.predecessor_count(TaskId(i));
      if (waiting_for_[i] == 0) ready_.push_back(TaskId(i));
    }
  }

  TaskId take_ready() {
    const TaskId task = ready_.back();
    ready_.pop_back();
    return task;
  }

  // Returns whether all members have arrived now.
  bool arrives_last(TaskId member, Time when) {
    const CollectiveId collective = graph_.collective(member);
    times_.arrive(collective, member, when);
    return ++arrived_[index(collective)] == graph_.members(collective).size();
  }

  void end(TaskId task, Time when) {
    times_.end[index(task)] = when;
    for (const TaskId after : graph_.successors(task))
      release(after, task, when, cause_of_dependency(graph_, task));
    if (const TaskId next = graph_.next_on_stream(task); next.valid())
      release(next, task, when, Cause::stream);
  }

  const TaskGraph& graph_;
  const Prices& prices_;
  TaskTimes times_;
  std::vector<TaskId> ready_;

 private:
  void release(TaskId task, TaskId before, Time when, Cause why) {
    times_.wait_for(task, before, when, why);
    if (--waiting_for_[index(task)] == 0) ready_.push_back(task);
  }

  std::vector<std::uint32_t> arrived_;      // members per collective
  std::vector<std::uint32_t> waiting_for_;  // predecessors per task
};

class LongestPath : Tasks {
 public:
  LongestPath(const TaskGraph& graph, const Prices& prices) : Tasks(graph, prices) {}

  TaskTimes run() {
    while (!ready_.empty()) {
      const TaskId task = take_ready();
      const Time start = times_.start[index(task)];
      if (graph_.kind(task) != TaskKind::member)
        end(task, start + prices_.work[index(graph_.work(task))]);
      else if (arrives_last(task, start))
        transfer(graph_.collective(task));
    }
    return std::move(times_);
  }

 private:
  void transfer(CollectiveId collective) {
    const Time begin = times_.begin[index(collective)];
    const auto members = graph_.members(collective);
    const auto durations = prices_.members(graph_.shape_index(collective));
    for (std::size_t i = 0; i < members.size(); ++i) end(members[i], begin + durations[i]);
  }
};

class Events : Tasks {
 public:
  Events(const TaskGraph& graph, const Prices& prices, const RunOptions& options)
      : Tasks(graph, prices), queue_(graph.task_count()) {
    if (!prices.overlap.empty()) {
      ranks_.resize(graph.rank_count());
      progress_.resize(graph.task_count());
    }
    if (options.timing == Timing::flow)
      flows_.emplace(graph, prices, *options.fabric, options.flow_window, options.router);
  }

  EventsResult run() {
    for (;;) {
      while (!ready_.empty()) begin(take_ready());
      if (queue_.next() > now_) adjust_rates();  // once an instant, whatever takes no time in it
      const Time next = std::min(queue_.next(), flows_ ? flows_->next() : Time::kMax);
      if (next == Time::kMax) break;
      now_ = next;
      while (queue_.next() == now_) finish_task(TaskId(queue_.pop()));
      if (flows_) {
        ended_members_.clear();
        flows_->advance(now_, ended_members_);
        for (const TaskId member : ended_members_) finish_task(member);
      }
    }
    return {std::move(times_), flows_ ? flows_->link_use() : std::vector<LinkUse>()};
  }

 private:
  // State of a rank, kept where overlap slows it down.
  struct Rank {
    std::vector<TaskId> running;  // slowed tasks in the queue: compute, and members under `calibrated`
    std::uint32_t computing = 0;
    std::uint32_t transferring = 0;
    bool changed = false;
  };

  void begin(TaskId task) {
    if (graph_.kind(task) == TaskKind::member) return arrive(task);
    const Time work = prices_.work[index(graph_.work(task))];
    if (graph_.kind(task) == TaskKind::compute && !ranks_.empty()) {
      ++ranks_[index(graph_.rank(task))].computing;
      run_slowed(task, work);
    } else {
      queue_.set(task.value(), now_ + work);
    }
  }

  void arrive(TaskId task) {
    if (!arrives_last(task, now_)) return;
    const CollectiveId collective = graph_.collective(task);
    const auto members = graph_.members(collective);
    if (flows_) flows_->begin(collective, now_);
    const auto durations = flows_ ? std::span<const Time>() : prices_.members(graph_.shape_index(collective));
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!ranks_.empty()) {
        Rank& rank = ranks_[index(graph_.rank(members[i]))];
        ++rank.transferring;
        mark(rank, graph_.rank(members[i]));
      }
      if (flows_) continue;
      if (ranks_.empty())
        queue_.set(members[i].value(), now_ + durations[i]);
      else
        run_slowed(members[i], durations[i]);
    }
  }

  void run_slowed(TaskId task, Time work) {
    Rank& rank = ranks_[index(graph_.rank(task))];
    rank.running.push_back(task);
    progress_[index(task)] = {work, now_, 1.0};
    queue_.set(task.value(), now_ + work);
    mark(rank, graph_.rank(task));
  }

  void mark(Rank& rank, RankId id) {
    if (rank.changed) return;
    rank.changed = true;
    changed_.push_back(id);
  }

  // Updates the rates of tasks on ranks whose mix of computing and communicating has changed.
  void adjust_rates() {
    for (const RankId id : changed_) {
      Rank& rank = ranks_[index(id)];
      rank.changed = false;
      const bool both = rank.computing > 0 && rank.transferring > 0;
      const Overlap& factors = prices_.overlap[index(id)];
      for (const TaskId task : rank.running) {
        const double slowdown = slowdown_of(factors, graph_.kind(task) == TaskKind::compute, both);
        Progress& progress = progress_[index(task)];
        if (progress.slowdown == slowdown) continue;
        queue_.set(task.value(), progress.change(slowdown, now_));
      }
      if (flows_) flows_->slow_down(id, slowdown_of(factors, false, both), now_);
    }
    changed_.clear();
  }

  void finish_task(TaskId task) {
    if (!ranks_.empty()) leave(task);
    end(task, now_);
  }

  void leave(TaskId task) {
    const TaskKind kind = graph_.kind(task);
    if (kind != TaskKind::compute && kind != TaskKind::member) return;
    const RankId id = graph_.rank(task);
    Rank& rank = ranks_[index(id)];
    kind == TaskKind::compute ? --rank.computing : --rank.transferring;
    const auto place = std::find(rank.running.begin(), rank.running.end(), task);
    if (place != rank.running.end()) rank.running.erase(place);
    mark(rank, id);
  }

  EventQueue queue_;  // of task ends
  std::optional<FlowCollectives> flows_;
  std::vector<TaskId> ended_members_;
  std::vector<Rank> ranks_;  // empty where nothing is slowed
  std::vector<Progress> progress_;
  std::vector<RankId> changed_;
  Time now_;
};

}  // namespace

TaskTimes longest_path(const TaskGraph& graph, const Prices& prices) {
  return LongestPath(graph, prices).run();
}

EventsResult run_events(const TaskGraph& graph, const Prices& prices, const RunOptions& options) {
  return Events(graph, prices, options).run();
}

}  // namespace moesim::sim
