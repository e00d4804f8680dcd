// What the instances of a replay move, in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "replay/run/iteration.h"
#include "sim/graph/task_graph.h"

namespace moesim::replay {

// Of one graph: matrices that recur are added to its builder once.
class InstanceTraffic {
 public:
  // All members' bytes. An exchange is split between its members by what each puts in and takes out
  // (routing_recovery.h), or evenly where nothing shows what comes out.
  sim::TrafficRef of(const Instance& instance, sim::TaskGraphBuilder& builder);

 private:
  sim::TrafficRef exchange(const Instance& instance, sim::TaskGraphBuilder& builder);

  using Margins = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;
  std::map<Margins, sim::MatrixId> matrices_;
};

}  // namespace moesim::replay
