// One MoE layer as a task graph, for the simulator: where the network is shared, collectives of several
// dispatch groups contend, and their times are not known before (timing `flow`).
#pragma once

#include <cstdint>
#include <span>

#include "replay/run/layer_forecast.h"
#include "sim/graph/task_graph.h"

namespace moesim::replay {

// The segments one after the other on `groups` dispatch groups that all do the same at the same time: rank r
// of group c is rank c R + r of the graph. Every operation is launched by its rank's host, which takes
// launch_ps per kernel; a blocking wait is a host task behind its copy. Durations of what computes are the
// segments' prices; collectives carry their bytes, those that travel inside another one (Op::fused) added to
// it. What comes first on a segment waits for everything that its rank did in the one before.
sim::TaskGraph layer_graph(std::span<const LayerSegment> segments, std::int64_t launch_ps, int groups = 1);

}  // namespace moesim::replay
