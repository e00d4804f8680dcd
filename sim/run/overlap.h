// Overlap of computing and communication on a GPU: progress has a rate, which changes with the overlap.
#pragma once

#include <algorithm>
#include <cmath>

#include "sim/graph/costs.h"
#include "sim/graph/time.h"

namespace moesim::sim {

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
