// The result of a run: start, end and cause of every task, and the reports derived from them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "sim/graph/ids.h"
#include "sim/graph/task_graph.h"
#include "sim/graph/time.h"
#include "sim/run/task_times.h"

namespace moesim::sim {

using Breakdown = std::array<Time, kCategories>;  // by Category

// One rank's time from zero to the end of the iteration.
struct RankSummary {
  Time busy;            // computing on any compute stream (an instant counts once)
  Time exposed_comm;    // transferring while not computing
  Time straggler_wait;  // waiting in a rendezvous while neither computing nor transferring
  Time host;            // the host busy and none of the above
  Time bubble;          // none of these, or waiting for the other side of a send_recv
  Time end;             // end of the rank's last task
  // Its sum is exactly the iteration: each instant is booked once, as computing if the rank computes, else as
  // transferring, else as waiting, else as host (sim/run/booking.h).
  Breakdown breakdown{};
};

// A piece of the critical path; pieces cover the time from zero to the end of the iteration without gaps.
struct PathStep {
  TaskId task;
  Time from;
  Time to;
  Cause cause;  // why it starts at `from`
};

struct LinkUse {
  LinkId link;
  double bytes = 0;        // bytes carried
  double utilisation = 0;  // bytes / (capacity x iteration)
};

class Timeline {
 public:
  Timeline() = default;
  // Takes the times of a finished run. `books`: it fills the ranks' summaries. `links`: timing `flow` has them.
  Timeline(const TaskGraph& graph, TaskTimes&& times, bool books, bool keep_tasks,
           std::vector<LinkUse> links);

  Time iteration() const { return iteration_; }
  std::size_t rank_count() const { return ranks_.size(); }
  const RankSummary& rank(RankId rank) const { return ranks_[index(rank)]; }
  std::span<const RankSummary> ranks() const { return ranks_; }
  RankId critical_rank() const { return critical_rank_; }  // the first of those that end last
  const Breakdown& breakdown() const { return rank(critical_rank_).breakdown; }

  // With Detail::full only; indexed by task.
  bool has_tasks() const { return !tasks_.start.empty(); }
  Time start(TaskId task) const { return tasks_.start[index(task)]; }
  Time end(TaskId task) const { return tasks_.end[index(task)]; }
  Cause cause(TaskId task) const { return tasks_.cause[index(task)]; }
  TaskId cause_task(TaskId task) const { return tasks_.cause_task[index(task)]; }  // invalid for Cause::none
  // The start of a collective's transfer, and the member that arrived last.
  Time begin(CollectiveId collective) const { return tasks_.begin[index(collective)]; }
  TaskId last_arrival(CollectiveId collective) const { return tasks_.last_arrival[index(collective)]; }

  // Multiplies the iteration and the times of tasks and transfers; the ranks' summaries stay.
  void scale(double factor);

  // Returns the critical path of the iteration. With Detail::full only.
  std::vector<PathStep> critical_path(const TaskGraph& graph) const;

  std::span<const LinkUse> links() const { return links_; }  // with timing `flow`: links that carried traffic

 private:
  Time iteration_;
  RankId critical_rank_;
  std::vector<RankSummary> ranks_;
  TaskTimes tasks_;
  std::vector<LinkUse> links_;
};

}  // namespace moesim::sim
