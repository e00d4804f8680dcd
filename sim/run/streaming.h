// A run of a job too large to hold as a graph: tasks are timed as they are added and then forgotten.
//
// The caller adds tasks in an order that streams and dependencies respect, and a collective with all its
// members at once; whatever a task waits for has then been timed already, so that memory is needed for
// streams and ranks only. Timing is that of run() with Timing::calibrated and without overlap factors;
// deadlocks cannot be written down.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/graph/ids.h"
#include "sim/graph/task_graph.h"
#include "sim/graph/time.h"
#include "sim/run/timeline.h"

namespace moesim::sim {

// The end of a task and what an idle stream that waited for it was waiting for.
struct Point {
  Time end;
  Time begin;  // of a transfer; of other tasks their start
  Category category = Category::other;
  TaskKind kind = TaskKind::compute;
  bool peer = false;  // of a send_recv
};

inline const Point& later(const Point& a, const Point& b) { return b.end > a.end ? b : a; }

class StreamingRun {
 public:
  RankId add_rank();
  // The first compute stream of a rank is the one whose time is broken down.
  StreamId add_stream(RankId rank, StreamKind kind);

  // A compute, delay or host task of `work` that starts when its stream is free and `after` is over.
  Point add(TaskKind kind, StreamId stream, Time work, Category category, const Point& after = {});

  struct Member {
    StreamId stream;
    Point after;
  };
  // A collective: begins when the last member can start, member i ends `durations[i]` later (or durations[0],
  // when there is one for all). `ends` gets a point for each member.
  void add_collective(CollectiveOp op, std::span<const Member> members, std::span<const Time> durations,
                      Category category, std::span<Point> ends);

  std::uint64_t task_count() const { return tasks_; }

  // Summaries of all ranks (Detail::aggregate). What a rank's first compute stream does is booked as it is;
  // when it is idle before a task, as what that task waits for: the transfer, the wait of the rendezvous
  // before it, or the host.
  Timeline finish();

 private:
  struct Stream {
    RankId rank;
    StreamKind kind;
    bool main = false;
    Time free;  // end of its last task
  };

  void book(RankId rank, Category category, Time span, Time RankSummary::*total);
  void book_idle(const Stream& stream, Time start, const Point& after);

  std::vector<Stream> streams_;
  std::vector<RankSummary> ranks_;
  std::vector<bool> has_main_;
  std::vector<Time> starts_;  // of the members of the collective at hand
  std::uint64_t tasks_ = 0;
};

}  // namespace moesim::sim
