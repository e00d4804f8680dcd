// Common networks by name and a few numbers. GPUs are numbered node by node.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/network/fabric.h"

namespace moesim::sim {

// A server, or a rack with one NVLink domain. Bandwidths in bytes per second and direction.
struct NodeShape {
  std::uint32_t gpus = 8;
  double nvlink_bandwidth = 450e9;  // per GPU, to the switch; in a mesh: of the link to each other GPU
  Time nvlink_latency = Time::from_us(0.5);
  bool mesh = false;       // GPUs are linked to each other (xGMI) instead of a switch
  std::uint32_t nics = 8;  // 1 .. gpus; GPU i uses NIC i * nics / gpus
  double nic_bandwidth = 50e9;
  Time nic_latency = Time::from_us(1);
  double connection_cap = 0;  // per flow through a NIC; 0: none
  double pcie_bandwidth = 64e9;
  // GPUs of every node without direct access to a NIC: their traffic is staged in host memory.
  std::vector<std::uint32_t> without_gpudirect = {};
  double staging_bandwidth = 12e9;
  Time staging_latency = Time::from_us(10);
};

// The switches between the nodes.
struct TreeShape {
  std::uint32_t nodes_per_leaf = 4;
  std::uint32_t spines = 4;
  double oversubscription = 1.0;  // bandwidth below a leaf over bandwidth above it
  Time switch_latency = Time::from_us(0.5);
};

// NIC i of all nodes under a leaf group connects to the group's leaf i mod `rails`; spines join all leaves.
Fabric leaf_tree(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree, std::uint32_t rails);
// Rail-optimised: a leaf of a group for each NIC.
inline Fabric rail_tree(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree) {
  return leaf_tree(nodes, node, tree, node.nics);
}
// Plain: all NICs of a node connect to one leaf.
inline Fabric fat_tree(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree) {
  return leaf_tree(nodes, node, tree, 1);
}
// Three layers: pods of `leaves_per_pod` leaves with their own spines, and as many core switches as spines in
// a pod, spine i of every pod on core i.
Fabric pod_tree(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree,
                std::uint32_t leaves_per_pod);
// Groups of `routers` fully connected routers, with one link between any two groups, distributed over the
// routers (Kim, Dally, Scott, Abts 2008). Each router has `nodes_per_router` nodes.
Fabric dragonfly(std::uint32_t nodes, const NodeShape& node, std::uint32_t routers,
                 std::uint32_t nodes_per_router, double local_bandwidth, double global_bandwidth);
// One node alone.
Fabric single_node(const NodeShape& node);

// Return the number of cables, before anything is built.
double leaf_tree_cables(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree,
                        std::uint32_t rails);
double pod_tree_cables(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree,
                       std::uint32_t leaves_per_pod);
double dragonfly_cables(std::uint32_t nodes, const NodeShape& node, std::uint32_t routers,
                        std::uint32_t nodes_per_router);
double single_node_cables(const NodeShape& node);

// Names of the presets as files use them.
std::span<const std::string> fabric_presets();

}  // namespace moesim::sim
