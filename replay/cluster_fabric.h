// The network of a cluster as a fabric, for timing `flow`.
#pragma once

#include <string>

#include "models/cluster.h"
#include "sim/fabric.h"

namespace moesim::replay {

// From the cluster's `fabric`: empty or the default of its node type ("rail-optimised", "fat-tree", "nvl72",
// "xgmi-mesh"), a preset's name, the JSON text of a preset or an own network, or the path of a JSON or
// GraphML file (sim/fabric_file.h). What a preset does not give comes from the cluster: nodes, GPUs and ports
// of a node, bandwidths and latencies. Throws InputError for a fabric with fewer GPUs than the cluster, or of
// another kind.
sim::Fabric cluster_fabric(const models::Cluster& cluster);

// Whether the user has said what the network looks like, so that timing `calibrated`, which knows only what
// was measured on a fabric without contention, leaves something out.
bool has_own_fabric(const models::Cluster& cluster);

}  // namespace moesim::replay
