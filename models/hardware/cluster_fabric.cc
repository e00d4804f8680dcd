#include "models/hardware/cluster_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/hardware/gpu_family.h"
#include "sim/network/fabric_file.h"
#include "sim/network/fabric_presets.h"

namespace moesim::models {

namespace {

constexpr std::string_view kNodeTypeFabrics[] = {"", "rail-optimised", "fat-tree", "nvl72", "xgmi-mesh"};

sim::FabricDefaults defaults_of(const Cluster& cluster) {
  sim::FabricDefaults defaults;
  // A fabric's node contains the GPUs that reach each other without the network.
  const auto gpus =
      static_cast<std::uint32_t>(std::min<std::int64_t>(cluster.nvlink.domain, cluster.ranks()));
  defaults.nodes = static_cast<std::uint32_t>((cluster.ranks() + gpus - 1) / gpus);
  sim::NodeShape& node = defaults.node;
  node.gpus = gpus;
  node.mesh = links_are_mesh(cluster);
  node.nvlink_bandwidth =
      node.mesh && gpus > 1 ? cluster.nvlink.bandwidth / (gpus - 1) : cluster.nvlink.bandwidth;
  if (cluster.nvlink.latency > 0) node.nvlink_latency = sim::Time::from_seconds(cluster.nvlink.latency);
  // Several ports of a GPU are merged into one, and parts of ports are dealt out.
  const double ports = static_cast<double>(cluster.nic.ports_per_node) * gpus / cluster.gpus_per_node;
  node.nics = static_cast<std::uint32_t>(std::clamp(std::ceil(ports), 1.0, static_cast<double>(gpus)));
  node.nic_bandwidth = cluster.nic.bandwidth * ports / node.nics;
  if (cluster.nic.latency > 0) node.nic_latency = sim::Time::from_seconds(cluster.nic.latency / 2);
  node.connection_cap = cluster.nic.per_connection_cap;
  // The host's bus is at least as wide as the ports behind it.
  node.pcie_bandwidth = std::max(node.pcie_bandwidth, node.nic_bandwidth);
  return defaults;
}

sim::Fabric build(const Cluster& cluster) {
  const sim::FabricDefaults defaults = defaults_of(cluster);
  const std::string& text = cluster.fabric;
  // The profile contains no contention in the spine: one switch, so that no hash puts two flows on a link.
  sim::TreeShape tree;
  tree.spines = 1;
  if (text.empty() || text == "rail-optimised" || text == "nvl72" || text == "xgmi-mesh")
    return sim::rail_tree(defaults.nodes, defaults.node, tree);
  if (text == "fat-tree") return sim::fat_tree(defaults.nodes, defaults.node, tree);
  if (text.front() == '{') return sim::read_fabric(JsonNode::parse(text, cluster.fabric_place), defaults);
  const auto presets = sim::fabric_presets();
  if (std::find(presets.begin(), presets.end(), text) != presets.end())
    return sim::read_fabric(JsonNode::parse(fmt::format("{{\"preset\": \"{}\"}}", text), cluster.name),
                            defaults);
  if (is_file(text)) return sim::read_fabric_file(text, defaults);
  std::vector<std::string> known(presets.begin(), presets.end());
  for (const std::string_view name : kNodeTypeFabrics)
    if (!name.empty() && name != "fat-tree") known.emplace_back(name);
  throw InputError(fmt::format("cluster {}: found the fabric {}, expected a file or one of {}{}",
                               cluster.name, in_quotes(text), join(known, ", "), did_you_mean(text, known)));
}

}  // namespace

bool links_are_mesh(const Cluster& cluster) {
  const GpuFamily* family = gpu_family(cluster.profile.name());
  return cluster.fabric == "xgmi-mesh" || (family && family->amd());
}

bool has_own_fabric(const Cluster& cluster) {
  return std::find(std::begin(kNodeTypeFabrics), std::end(kNodeTypeFabrics), cluster.fabric) ==
         std::end(kNodeTypeFabrics);
}

sim::Fabric cluster_fabric(const Cluster& cluster) {
  if (cluster.ranks() > sim::kMostFabricGpus)
    throw InputError(fmt::format("cluster {}: found {} GPUs, expected at most {} for timing flow",
                                 cluster.name, cluster.ranks(), sim::kMostFabricGpus));
  sim::Fabric fabric = build(cluster);
  if (fabric.gpu_count() < static_cast<std::size_t>(cluster.ranks()))
    throw InputError(fmt::format("cluster {}: found a fabric of {} GPUs, expected the cluster's {}",
                                 cluster.name, fabric.gpu_count(), cluster.ranks()));
  return fabric;
}

double flow_window(std::int64_t messages) {
  constexpr std::int64_t kExactMessages = 20'000;
  constexpr double kWindow = 0.1;
  return messages > kExactMessages ? kWindow : 0;
}

LinkLoad busiest_link(const sim::Timeline& timeline, const sim::Fabric& fabric) {
  LinkLoad busiest;
  for (const sim::LinkUse& use : timeline.links()) {
    if (use.utilisation <= busiest.utilisation) continue;
    const sim::FabricLink& link = fabric.links()[use.link.value()];
    busiest = {fabric.nodes()[link.from].name, fabric.nodes()[link.to].name, use.bytes, use.utilisation};
  }
  return busiest;
}

}  // namespace moesim::models
