// Bytes moved by the instances of a replay.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "replay/run/iteration.h"
#include "sim/graph/task_graph.h"

namespace moesim::replay {

// For one graph: recurring matrices are added to its builder once.
class InstanceTraffic {
 public:
  // Returns the bytes of all members. An exchange is split between its members by their inputs and outputs
  // (routing_recovery.h), or evenly where the outputs are unknown.
  sim::TrafficRef of(const Instance& instance, sim::TaskGraphBuilder& builder);

 private:
  sim::TrafficRef exchange(const Instance& instance, sim::TaskGraphBuilder& builder);

  using Margins = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;
  std::map<Margins, sim::MatrixId> matrices_;
};

}  // namespace moesim::replay
