// All prices of a run, computed once before it starts.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"
#include "sim/graph/time.h"

namespace moesim::sim {

struct Prices {
  std::vector<Time> work;                // per WorkId
  std::vector<Overlap> overlap;          // per rank; empty without slowdowns
  std::vector<std::size_t> shape_begin;  // calibrated: first index of a shape's member times in shape_time
  std::vector<Time> shape_time;          // calibrated
  std::vector<FlowParameters> plan;      // flow: per shape

  // Returns the time from the last arrival to the end of each member, in group order.
  std::span<const Time> members(std::uint32_t shape) const {
    return {shape_time.data() + shape_begin[shape], shape_begin[shape + 1] - shape_begin[shape]};
  }
};

// Aborts when `costs` returns a negative time or a factor below 1.
Prices price(const TaskGraph& graph, const Costs& costs, bool calibrated);

// Overlap of computing and communication on a GPU: progress has a rate, which changes with the overlap.

// Returns the slowdown of a rank's task that computes (or else communicates) while both are active.
inline double slowdown_of(const Overlap& factors, bool compute, bool both) {
  if (!both) return 1.0;
  return compute ? factors.compute : factors.communication;
}

// A running task with a variable rate.
struct Progress {
  Time left;  // remaining work at `since`, as time at full rate
  Time since;
  double slowdown = 1.0;

  // Changes the rate at `now`. Returns the new end of the task.
  Time change(double to, Time now) {
    const auto done = static_cast<double>((now - since).ps()) / slowdown;
    left = std::max(Time::kZero, left - Time::from_ps(std::llround(done)));
    since = now;
    slowdown = to;
    return now + Time::from_ps(std::llround(static_cast<double>(left.ps()) * to));
  }
};

}  // namespace moesim::sim
