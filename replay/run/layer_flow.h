// A layer under timing `flow`: all dispatch groups of a job at once on the cluster's network, so that
// collectives of different groups contend for what they share.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/hardware/cluster.h"
#include "replay/run/cluster_fabric.h"
#include "replay/run/layer_forecast.h"
#include "sim/network/fabric.h"

namespace moesim::replay {

struct FlowTiming {
  LayerTiming timing;  // end_ps of all groups; breakdown of the critical rank
  int groups = 1;      // dispatch groups that ran side by side
  LinkLoad busiest;    // of the links between GPUs
};

// How many dispatch groups of `ranks` GPUs a job on this cluster has; bounded so that a question stays cheap.
int flow_groups(const models::Cluster& cluster, int ranks);

// Runs the segments on `groups` neighbouring dispatch groups. The prices of what computes come from the
// segments, collectives become flows. Exact max-min fairness up to some ten thousand messages, beyond that
// rates are solved in windows (docs/performance.md), within 0.1 %.
FlowTiming flow_layer(std::span<const LayerSegment> segments, std::int64_t launch_ps,
                      const models::Cluster& cluster, const sim::Fabric& fabric, int groups);

}  // namespace moesim::replay
