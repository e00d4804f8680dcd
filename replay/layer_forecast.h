// One MoE layer, forward and backward, timed on every rank of a dispatch group.
//
// The sequence of operations is the same on all ranks, so the recursion of the simulator (in-order streams, a
// launch queue of the host, rendezvous collectives) can be followed operation by operation without an event
// queue: exact, and fast enough for sweeps. tests/replay/layer_forecast_test.cc holds it against sim::run on
// the same programs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/layer_costs.h"
#include "models/program.h"
#include "sim/task_graph.h"

namespace moesim::replay {

// A pass of a program with its prices.
struct LayerSegment {
  const models::Program* program = nullptr;
  const std::vector<models::Op>* ops = nullptr;
  const models::PricedPass* prices = nullptr;
};

struct LayerTiming {
  std::int64_t total_ps = 0;                                  // until the last rank is done
  int critical_rank = 0;                                      // the first that ends last
  std::vector<std::int64_t> end_ps;                           // per rank
  std::array<std::int64_t, sim::kCategories> breakdown_ps{};  // of the critical rank; adds up to total_ps
  std::int64_t launch_bound_ps = 0;  // of the critical rank: idle because the host had not launched
};

// Runs the segments one after the other on the same clocks: a rank enters a segment when it is done with the
// one before. `breakdown` off skips it (and leaves it zero).
LayerTiming time_layer(std::span<const LayerSegment> segments, std::int64_t launch_ps, bool breakdown = true);

}  // namespace moesim::replay
