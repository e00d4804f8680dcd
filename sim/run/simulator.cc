#include "sim/run/simulator.h"

#include <algorithm>

#include "base/check.h"
#include "sim/network/fabric.h"
#include "sim/run/deadlock.h"
#include "sim/run/events.h"
#include "sim/run/prices.h"

namespace moesim::sim {

Timeline run(const TaskGraph& graph, const Costs& costs, const RunOptions& options) {
  const Prices prices = price(graph, costs, options.timing == Timing::calibrated);
  check(options.timing != Timing::flow || options.fabric != nullptr, "timing `flow` needs a fabric");
  const bool rates_change =
      options.timing == Timing::flow || (options.timing == Timing::calibrated && !prices.overlap.empty());
  EventsResult result =
      rates_change ? run_events(graph, prices, options) : EventsResult{longest_path(graph, prices), {}};
  if (std::find(result.times.end.begin(), result.times.end.end(), kNotYet) != result.times.end.end())
    throw find_deadlock(graph, result.times);
  if (options.fabric != nullptr) {
    const auto last = std::max_element(result.times.end.begin(), result.times.end.end());
    const Time iteration = last == result.times.end.end() ? Time{} : *last;  // a graph may be empty
    for (LinkUse& use : result.links)
      use.utilisation = use.bytes / (options.fabric->links()[index(use.link)].capacity * iteration.seconds());
  }
  return Timeline(graph, std::move(result.times), options.detail != Detail::times,
                  options.detail != Detail::aggregate, std::move(result.links));
}

}  // namespace moesim::sim
