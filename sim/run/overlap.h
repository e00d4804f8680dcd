// The law of what computes and communicates at the same time on a GPU: progress is a rate, and the rate
// changes when the overlap does.
#pragma once

#include <algorithm>
#include <cmath>

#include "sim/graph/costs.h"
#include "sim/graph/time.h"

namespace moesim::sim {

// How much longer a task of a rank takes that is computing (or else communicating) while both go on.
inline double slowdown_of(const Overlap& factors, bool compute, bool both) {
  if (!both) return 1.0;
  return compute ? factors.compute : factors.communication;
}

// A running task whose rate can change.
struct Progress {
  Time left;  // of the work, as time at full rate, at `since`
  Time since;
  double slowdown = 1.0;

  // The rate changes at `now`. Returns when the task will end.
  Time change(double to, Time now) {
    const auto done = static_cast<double>((now - since).ps()) / slowdown;
    left = std::max(Time::kZero, left - Time::from_ps(std::llround(done)));
    since = now;
    slowdown = to;
    return now + Time::from_ps(std::llround(static_cast<double>(left.ps()) * to));
  }
};

}  // namespace moesim::sim
