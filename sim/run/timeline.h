// The result of a run: start, end and cause of every task, and the reports derived from them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/graph/ids.h"
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
  Time iteration() const { return iteration_; }
  std::size_t rank_count() const { return ranks_.size(); }
  const RankSummary& rank(RankId rank) const { return ranks_[index(rank)]; }
  std::span<const RankSummary> ranks() const { return ranks_; }
  RankId critical_rank() const { return critical_rank_; }  // the first of those that end last
  const Breakdown& breakdown() const { return rank(critical_rank_).breakdown; }

  // With Detail::full only; indexed by task.
  bool has_tasks() const { return !start_.empty(); }
  Time start(TaskId task) const { return start_[index(task)]; }
  Time end(TaskId task) const { return end_[index(task)]; }
  Cause cause(TaskId task) const { return cause_[index(task)]; }
  TaskId cause_task(TaskId task) const { return cause_task_[index(task)]; }  // invalid for Cause::none
  // The start of a collective's transfer, and the member that arrived last.
  Time begin(CollectiveId collective) const { return begin_[index(collective)]; }
  TaskId last_arrival(CollectiveId collective) const { return last_arrival_[index(collective)]; }

  // Multiplies the iteration and the times of tasks and transfers; the ranks' summaries stay.
  void scale(double factor);

  // Returns the critical path of the iteration. With Detail::full only.
  std::vector<PathStep> critical_path(const TaskGraph& graph) const;

  std::span<const LinkUse> links() const { return links_; }  // with timing `flow`: links that carried traffic

 private:
  friend class TimelineRecorder;

  Time iteration_;
  RankId critical_rank_;
  std::vector<RankSummary> ranks_;
  std::vector<Time> start_;
  std::vector<Time> end_;
  std::vector<Cause> cause_;
  std::vector<TaskId> cause_task_;
  std::vector<Time> begin_;
  std::vector<TaskId> last_arrival_;
  std::vector<LinkUse> links_;
};

}  // namespace moesim::sim
