// The network: GPUs, switches and NICs with links between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/graph/ids.h"
#include "sim/graph/time.h"

namespace moesim::sim {

enum class NodeKind : std::uint8_t { gpu, nvswitch, pcie, nic, leaf, spine, core };
std::string_view name(NodeKind kind);

// Choice among several shortest routes to a GPU.
enum class Multipath : std::uint8_t {
  hash,         // by a hash of source, destination and switch (ECMP)
  destination,  // by the destination's number (D-mod-k, the usual choice of static fat-tree routing)
};

// A directed link. Bandwidths in bytes per second.
struct FabricLink {
  std::uint32_t from = 0;  // node
  std::uint32_t to = 0;
  double capacity = 0;
  Time latency;
  double connection_cap = 0;  // per flow; 0: none
};

struct FabricNode {
  NodeKind kind = NodeKind::gpu;
  std::string name;
  bool forwards = true;  // whether it forwards traffic between other nodes
};

class Fabric {
 public:
  // Building. GPUs are numbered in the order in which they are added and do not forward by default. `domain`
  // numbers the NVLink domain (usually the node): collectives stay inside as far as possible.
  std::uint32_t add_gpu(std::string name, std::uint32_t domain = 0, bool forwards = false);
  std::uint32_t add_node(NodeKind kind, std::string name);
  void add_link(std::uint32_t from, std::uint32_t to, double capacity, Time latency,
                double connection_cap = 0);
  // Adds both directions.
  void add_cable(std::uint32_t a, std::uint32_t b, double capacity, Time latency, double connection_cap = 0);
  void set_multipath(Multipath multipath) { multipath_ = multipath; }

  std::size_t gpu_count() const { return gpus_.size(); }
  std::uint32_t gpu_node(std::size_t gpu) const { return gpus_[gpu]; }  // graph node of the gpu-th GPU
  std::uint32_t domain(std::size_t gpu) const { return domains_[gpu]; }
  std::span<const FabricNode> nodes() const { return nodes_; }
  std::span<const FabricLink> links() const { return links_; }
  std::vector<double> capacities() const;  // of all links

  // Links of a node in the order they were added.
  std::span<const std::uint32_t> links_from(std::uint32_t node) const { return out_[node]; }
  std::span<const std::uint32_t> links_to(std::uint32_t node) const { return in_[node]; }
  Multipath multipath() const { return multipath_; }

  // Returns for every node the number of links to `target` through forwarding nodes; kNoWay without a route.
  static constexpr std::uint32_t kNoWay = 0xffffffff;
  std::vector<std::uint32_t> distances_to(std::uint32_t target) const;

  // Returns one line per problem: pairs of GPUs without a route (the first few by name), links without
  // bandwidth or with an absurd bandwidth (outside 1 kB/s .. 1 PB/s) or latency (negative or beyond one
  // second).
  std::vector<std::string> problems() const;

 private:
  std::uint32_t add(FabricNode node);
  bool all_meet() const;

  std::vector<FabricNode> nodes_;
  std::vector<FabricLink> links_;
  std::vector<std::vector<std::uint32_t>> out_, in_;  // links by node
  std::vector<std::uint32_t> gpus_, domains_;         // node and domain by GPU
  Multipath multipath_ = Multipath::hash;
};

}  // namespace moesim::sim
