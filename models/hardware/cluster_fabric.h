// The network of a cluster as a fabric, for timing `flow`.
#pragma once

#include <cstdint>
#include <string>

#include "models/hardware/link_load.h"
#include "sim/network/fabric.h"
#include "sim/run/timeline.h"

namespace moesim::models {

struct Cluster;

// From the cluster's `fabric`: empty or the default of its node type ("rail-optimised", "fat-tree", "nvl72",
// "xgmi-mesh"), a preset's name, the JSON text of a preset or an own network, or the path of a JSON or
// GraphML file (sim/network/fabric_file.h). What a preset does not give comes from the cluster: nodes, GPUs
// and ports of a node, bandwidths and latencies. Throws InputError for a fabric with fewer GPUs than the
// cluster, or of another kind.
sim::Fabric cluster_fabric(const Cluster& cluster);

// Whether the GPUs of a domain have a link to each other instead of one to a switch: of a node type or fabric
// that says so, and of GPUs that are built in no other way, whatever lies between their nodes.
bool links_are_mesh(const Cluster& cluster);

// Whether the user has said what the network looks like, so that timing `calibrated`, which knows only what
// was measured on a fabric without contention, leaves something out.
bool has_own_fabric(const Cluster& cluster);

// The window of sim::RunOptions for `messages` at once: exact rates up to some ten thousand, beyond that
// windows, within 0.1 % (docs/reliability.md).
double flow_window(std::int64_t messages);

// The most utilised link of a timeline made with timing `flow`; without a name where nothing was sent.
LinkLoad busiest_link(const sim::Timeline& timeline, const sim::Fabric& fabric);

}  // namespace moesim::models
