// All prices of a run, computed once before it starts.
#pragma once

#include <span>
#include <vector>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"

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

}  // namespace moesim::sim
