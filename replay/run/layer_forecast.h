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

#include "models/costs/layer_costs.h"
#include "models/programs/program.h"
#include "sim/graph/task_graph.h"

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

// When the operations of a segment ran, picoseconds: [operation][rank]. A collective starts when its rank has
// come and begins when the last member has; others begin when they start.
struct SegmentTrace {
  std::vector<std::int64_t> start, begin, end;
  int ranks = 0;
};

struct LayerOptions {
  bool breakdown = true;  // off: left zero
  // Batch-level overlap (docs/spec.md 2.2.3). Segments are dense forward, forward, backward, dense
  // backward; the forward ones belong to another microbatch than the backward ones and do not wait for them.
  // Launched interleaved, so that the exchange of one hides under the computing of the other.
  bool overlap_batches = false;
  // How much longer computing (communication) takes while the other runs on the same GPU; 1: not at all.
  double compute_slowdown = 1, communication_slowdown = 1;
  std::vector<SegmentTrace>* trace = nullptr;  // filled, one per segment, where given
};

// Runs the segments one after the other on the same clocks: a rank enters a segment when it is done with the
// one before.
LayerTiming time_layer(std::span<const LayerSegment> segments, std::int64_t launch_ps,
                       const LayerOptions& options = {});

}  // namespace moesim::replay
