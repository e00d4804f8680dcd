// The network of a cluster as a fabric, for timing `flow`.
#pragma once

#include <cstdint>
#include <string>

#include "models/hardware/group_shape.h"
#include "sim/network/fabric.h"
#include "sim/run/timeline.h"

namespace moesim::models {

struct Cluster;

// Builds the fabric of `cluster.fabric`: empty or the default of its node type ("rail-optimised", "fat-tree",
// "nvl72", "xgmi-mesh"), a preset's name, the JSON text of a preset or a custom network, or the path of a
// JSON or GraphML file (sim/network/fabric_file.h). A preset takes missing values from the cluster: nodes,
// GPUs and ports per node, bandwidths and latencies. Throws InputError for a fabric with fewer GPUs than the
// cluster, or of another kind.
sim::Fabric cluster_fabric(const Cluster& cluster);

// Returns whether the GPUs of a domain are linked to each other instead of to a switch: where the node type
// or fabric says so, and for GPUs that exist in no other form.
bool links_are_mesh(const Cluster& cluster);

// Returns whether the user described the network. Timing `calibrated` then misses effects, since it contains
// only what was measured on a fabric without contention.
bool has_own_fabric(const Cluster& cluster);

// Returns the window of sim::RunOptions for `messages` at once: exact rates up to about ten thousand, windows
// beyond, within 0.1 % (docs/reliability.md).
double flow_window(std::int64_t messages);

// Returns the most utilised link of a timeline made with timing `flow`; no name where nothing was sent.
LinkLoad busiest_link(const sim::Timeline& timeline, const sim::Fabric& fabric);

}  // namespace moesim::models
