// The machine that a job runs on: number of nodes, their GPU, and the wiring.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/hardware/profile.h"

namespace moesim {
class JsonNode;
}  // namespace moesim

namespace moesim::models {

// Network ports of a node. Bandwidths are bytes per second and direction.
struct Nic {
  int ports_per_node = 0;     // 8 on most 8-GPU nodes; fewer when GPUs share one
  double bandwidth = 0;       // per port
  double latency = 0;         // seconds, one way between two nodes; 0 = the profile's
  double latency_factor = 1;  // factor already applied to the profile's latencies
  double per_connection_cap =
      0;  // limit of one pair of ranks; 0 = the port's bandwidth x the profile's share
  // Point-to-point bandwidth of each local GPU where ports are uneven (a GPU without its own port, no
  // GPUDirect); empty = all equal.
  std::vector<double> gpu_bandwidth;
};

// The scale-up domain (NVLink, xGMI). Bandwidth is bytes per second, GPU and direction.
struct Nvlink {
  double bandwidth = 0;
  double latency = 0;         // seconds of one hop; 0 = the profile's
  double latency_factor = 1;  // factor already applied to the profile's latencies
  int domain = 8;             // GPUs connected without the network: 8 on a DGX, 72 on a GB200 NVL72
};

struct Cluster {
  // Origin of the number of nodes: given; 1 by default unless the job's GPUs need another number (object in a
  // file); or as many as the job needs ("dgx-h100", "h100").
  enum class NodeCount : std::uint8_t { kGiven, kOne, kOpen };

  std::string name;
  Profile profile;
  int nodes = 1;
  NodeCount node_count = NodeCount::kGiven;
  int gpus_per_node = 8;
  Nic nic;
  Nvlink nvlink;
  std::string fabric;  // preset name, path, or JSON text of a custom fabric; empty = default of the node type
  std::string fabric_place;  // file:line of a custom fabric's JSON text

  std::string network;  // network profile with the laws between domains

  std::int64_t ranks() const { return std::int64_t{nodes} * gpus_per_node; }
  // Returns bytes per second and direction of the network available to one GPU alone: its own ports or a
  // shared one.
  double gpu_network() const {
    return nic.bandwidth * std::max(1.0, static_cast<double>(nic.ports_per_node) / gpus_per_node);
  }
  // Returns a GPU's share of its node's ports when all GPUs send at once.
  double network_per_gpu() const { return nic.bandwidth * nic.ports_per_node / gpus_per_node; }
  // Returns the bandwidth of all ports of an NVLink domain, which may be several nodes or a part of one.
  double domain_network() const { return network_per_gpu() * nvlink.domain; }
  int node_of(std::int64_t rank) const { return static_cast<int>(rank / gpus_per_node); }
  int local_gpu(std::int64_t rank) const { return static_cast<int>(rank % gpus_per_node); }
  // Returns the index of a rank's NVLink domain; ranks with equal indices need no network.
  std::int64_t domain_of(std::int64_t rank) const { return rank / nvlink.domain; }

  // Returns the same cluster with enough nodes for `gpus` GPUs. Throws InputError beyond 2^20 nodes.
  Cluster holding(std::int64_t gpus) const;

  // Loads a built-in name with node count ("dgx-h100x4", "gb200-nvl72x2", "echo-h800x2") or without
  // ("dgx-h100", or the common "h100", "p5en"), or the path of a cluster file. Throws InputError for an
  // unknown name (with the closest), an unknown key or an impossible value.
  static Cluster load(const std::string& name_or_path);
  // Loads a string as above, or an object {"profile", "nodes", "gpus_per_node", "nic", "nvlink", "gpu",
  // "fabric", "rails"}; missing keys come from the profile. {"base": "dgx-h100x4", ...} starts from a
  // built-in cluster.
  static Cluster load(const JsonNode& node);
  // Returns a copy in which the keys of such an object ("profile", "nodes", "nic", ...) replace the values.
  Cluster changed(const JsonNode& object) const;
  // Returns JSON that load() reads back to an equal cluster: the name of the built-in cluster that it equals,
  // or an object with every number that can be set.
  nlohmann::ordered_json to_json() const;
  // Patterns of the built-in names, "dgx-h100xN", with descriptions.
  struct Pattern {
    std::string name;
    std::string description;
    std::string profile;
  };
  static std::vector<Pattern> patterns();
};

}  // namespace moesim::models
