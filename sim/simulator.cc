#include "sim/simulator.h"

#include <algorithm>

#include "base/check.h"
#include "sim/deadlock_finder.h"
#include "sim/prices.h"
#include "sim/sweep.h"

namespace moesim::sim {

Timeline run(const TaskGraph& graph, const Costs& costs, const RunOptions& options) {
  const Prices prices = price(graph, costs, options.timing == Timing::calibrated);
  check(options.timing != Timing::flow || options.fabric != nullptr, "timing `flow` needs a fabric");
  TaskTimes times = sweep(graph, prices);
  if (std::find(times.end.begin(), times.end.end(), kNotYet) != times.end.end())
    throw find_deadlock(graph, times);
  return TimelineRecorder::finish(graph, std::move(times), options.detail == Detail::full, {});
}

}  // namespace moesim::sim
