#include "sim/network/fabric_presets.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace moesim::sim {

namespace {

// Adds the inside of a node and returns its NICs.
std::vector<std::uint32_t> add_node(Fabric& fabric, std::uint32_t id, const NodeShape& shape) {
  check(shape.gpus > 0 && shape.nics > 0 && shape.nics <= shape.gpus,
        "a node has GPUs and at most a NIC for each");
  std::vector<std::uint32_t> gpus, nics;
  for (std::uint32_t g = 0; g < shape.gpus; ++g)
    gpus.push_back(fabric.add_gpu(fmt::format("node{}.gpu{}", id, g), id));
  if (shape.mesh) {
    for (std::uint32_t a = 0; a < shape.gpus; ++a)
      for (std::uint32_t b = a + 1; b < shape.gpus; ++b)
        fabric.add_cable(gpus[a], gpus[b], shape.nvlink_bandwidth, shape.nvlink_latency);
  } else if (shape.gpus > 1) {
    const std::uint32_t nvswitch = fabric.add_node(NodeKind::nvswitch, fmt::format("node{}.nvswitch", id));
    for (const std::uint32_t gpu : gpus)
      fabric.add_cable(gpu, nvswitch, shape.nvlink_bandwidth, shape.nvlink_latency);
  }
  for (std::uint32_t n = 0; n < shape.nics; ++n)
    nics.push_back(fabric.add_node(NodeKind::nic, fmt::format("node{}.nic{}", id, n)));
  for (std::uint32_t g = 0; g < shape.gpus; ++g) {
    // A PCIe port for each NIC keeps GPUs that share it from reaching each other through it in two hops.
    const std::uint32_t port = fabric.add_node(NodeKind::pcie, fmt::format("node{}.pcie{}", id, g));
    const auto& staged = shape.without_gpudirect;
    const bool direct = std::find(staged.begin(), staged.end(), g) == staged.end();
    fabric.add_cable(gpus[g], port, direct ? shape.pcie_bandwidth : shape.staging_bandwidth,
                     direct ? Time::kZero : shape.staging_latency);
    fabric.add_cable(port, nics[std::uint64_t{g} * shape.nics / shape.gpus], shape.pcie_bandwidth,
                     Time::kZero);
  }
  return nics;
}

void plug_in(Fabric& fabric, std::uint32_t nic, std::uint32_t leaf, const NodeShape& shape) {
  fabric.add_cable(nic, leaf, shape.nic_bandwidth, shape.nic_latency, shape.connection_cap);
}

// Links every lower switch to every upper one; together they carry a lower switch's downlink bandwidth
// divided by the oversubscription.
void join(Fabric& fabric, std::span<const std::uint32_t> lower, std::span<const std::uint32_t> upper,
          double below, const TreeShape& tree) {
  for (const std::uint32_t low : lower)
    for (const std::uint32_t up : upper)
      fabric.add_cable(low, up, below / tree.oversubscription / static_cast<double>(upper.size()),
                       tree.switch_latency);
}

std::vector<std::uint32_t> add_switches(Fabric& fabric, NodeKind kind, std::uint32_t count,
                                        const std::string& prefix) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t i = 0; i < count; ++i)
    result.push_back(fabric.add_node(kind, fmt::format("{}{}", prefix, i)));
  return result;
}

// Returns the number of groups of at most `each`.
std::uint32_t parts(std::uint32_t nodes, std::uint64_t each) {
  return static_cast<std::uint32_t>((nodes + each - 1) / each);
}

// Returns the cables inside the nodes and from their NICs to the switches.
double plugged_in_cables(std::uint32_t nodes, const NodeShape& node) {
  return nodes * (single_node_cables(node) + node.nics);
}

void check_tree(std::uint32_t nodes, const TreeShape& tree) {
  check(nodes > 0 && tree.nodes_per_leaf > 0 && tree.spines > 0 && tree.oversubscription > 0,
        "a tree has nodes");
}

}  // namespace

Fabric leaf_tree(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree, std::uint32_t rails) {
  check_tree(nodes, tree);
  Fabric fabric;
  const auto leaves = add_switches(fabric, NodeKind::leaf, parts(nodes, tree.nodes_per_leaf) * rails, "leaf");
  for (std::uint32_t id = 0; id < nodes; ++id) {
    const auto nics = add_node(fabric, id, node);
    for (std::uint32_t nic = 0; nic < node.nics; ++nic)
      plug_in(fabric, nics[nic], leaves[id / tree.nodes_per_leaf * rails + nic % rails], node);
  }
  const std::uint32_t per_rail = node.nics / rails;
  const double below = node.nic_bandwidth * per_rail * tree.nodes_per_leaf;
  if (leaves.size() > 1)
    join(fabric, leaves, add_switches(fabric, NodeKind::spine, tree.spines, "spine"), below, tree);
  return fabric;
}

Fabric pod_tree(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree,
                std::uint32_t leaves_per_pod) {
  check_tree(nodes, tree);
  check(leaves_per_pod > 0, "a pod has leaves");
  Fabric fabric;
  const std::uint64_t nodes_per_pod = std::uint64_t{tree.nodes_per_leaf} * leaves_per_pod;
  const std::uint32_t pods = parts(nodes, nodes_per_pod);
  const double below_leaf = node.nic_bandwidth * node.nics * tree.nodes_per_leaf;
  const double below_spine = below_leaf / tree.oversubscription / tree.spines * leaves_per_pod;
  std::vector<std::uint32_t> cores;
  if (pods > 1) cores = add_switches(fabric, NodeKind::core, tree.spines, "core");
  std::uint32_t id = 0;
  for (std::uint32_t pod = 0; pod < pods; ++pod) {
    const auto leaves = add_switches(fabric, NodeKind::leaf, leaves_per_pod, fmt::format("pod{}.leaf", pod));
    const auto spines = add_switches(fabric, NodeKind::spine, tree.spines, fmt::format("pod{}.spine", pod));
    join(fabric, leaves, spines, below_leaf, tree);
    for (std::size_t s = 0; s < cores.size(); ++s)
      fabric.add_cable(spines[s], cores[s], below_spine / tree.oversubscription, tree.switch_latency);
    for (std::uint64_t n = 0; n < nodes_per_pod && id < nodes; ++n, ++id)
      for (const std::uint32_t nic : add_node(fabric, id, node))
        plug_in(fabric, nic, leaves[n / tree.nodes_per_leaf], node);
  }
  return fabric;
}

Fabric dragonfly(std::uint32_t nodes, const NodeShape& node, std::uint32_t routers,
                 std::uint32_t nodes_per_router, double local_bandwidth, double global_bandwidth) {
  check(nodes > 0 && routers > 0 && nodes_per_router > 0, "a dragonfly has nodes and routers");
  Fabric fabric;
  const Time hop = Time::from_us(0.5);
  const std::uint64_t per_group = std::uint64_t{routers} * nodes_per_router;
  const std::uint32_t groups = parts(nodes, per_group);
  std::vector<std::vector<std::uint32_t>> group;
  for (std::uint32_t g = 0; g < groups; ++g) {
    group.push_back(add_switches(fabric, NodeKind::leaf, routers, fmt::format("group{}.router", g)));
    for (std::uint32_t a = 0; a < routers; ++a)
      for (std::uint32_t b = a + 1; b < routers; ++b)
        fabric.add_cable(group[g][a], group[g][b], local_bandwidth, hop);
  }
  for (std::uint32_t a = 0; a < groups; ++a)
    for (std::uint32_t b = a + 1; b < groups; ++b)
      fabric.add_cable(group[a][(b - 1) % routers], group[b][a % routers], global_bandwidth, hop);
  for (std::uint32_t id = 0; id < nodes; ++id)
    for (const std::uint32_t nic : add_node(fabric, id, node))
      plug_in(fabric, nic, group[id / per_group][id % per_group / nodes_per_router], node);
  return fabric;
}

Fabric single_node(const NodeShape& node) {
  Fabric fabric;
  add_node(fabric, 0, node);
  return fabric;
}

double single_node_cables(const NodeShape& node) {
  const double gpus = node.gpus;
  const double inside = node.mesh ? gpus * (gpus - 1) / 2 : node.gpus > 1 ? gpus : 0;
  return inside + 2 * gpus;
}

double leaf_tree_cables(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree,
                        std::uint32_t rails) {
  const double leaves = static_cast<double>(parts(nodes, tree.nodes_per_leaf)) * rails;
  return plugged_in_cables(nodes, node) + (leaves > 1 ? leaves * tree.spines : 0);
}

double pod_tree_cables(std::uint32_t nodes, const NodeShape& node, const TreeShape& tree,
                       std::uint32_t leaves_per_pod) {
  const double pods = parts(nodes, std::uint64_t{tree.nodes_per_leaf} * leaves_per_pod);
  return plugged_in_cables(nodes, node) +
         pods * tree.spines * (static_cast<double>(leaves_per_pod) + (pods > 1 ? 1 : 0));
}

double dragonfly_cables(std::uint32_t nodes, const NodeShape& node, std::uint32_t routers,
                        std::uint32_t nodes_per_router) {
  const double groups = parts(nodes, std::uint64_t{routers} * nodes_per_router), r = routers;
  return plugged_in_cables(nodes, node) + groups * r * (r - 1) / 2 + groups * (groups - 1) / 2;
}

std::span<const std::string> fabric_presets() {
  static const std::string kNames[] = {"single-node", "rail-tree", "fat-tree", "pod-tree", "dragonfly"};
  return kNames;
}

}  // namespace moesim::sim
