// The machine a job runs on: how many nodes of which GPU, how they are wired.
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
  double bandwidth = 0;       // of one port
  double latency = 0;         // seconds, one way between two nodes; 0 = the profile's
  double latency_factor = 1;  // that the profile's latencies were multiplied by
  double per_connection_cap =
      0;  // what one pair of ranks reaches; 0 = the port's bandwidth x the profile's share
  // Point-to-point bandwidth of each local GPU where ports are uneven (a GPU without a port of its own, no
  // GPUDirect); empty = all alike.
  std::vector<double> gpu_bandwidth;
};

// The scale-up domain (NVLink, xGMI). Bandwidth is bytes per second, GPU and direction.
struct Nvlink {
  double bandwidth = 0;
  double latency = 0;         // seconds of one hop; 0 = the profile's
  double latency_factor = 1;  // that the profile's latencies were multiplied by
  int domain = 8;  // GPUs that reach each other without the network: 8 on a DGX, 72 on a GB200 NVL72
};

struct Cluster {
  // Who said how many nodes there are: somebody; nobody, so that it is one unless the job's GPUs say another
  // number (a file's object); or nobody, so that it is as many as hold the job ("dgx-h100", "h100").
  enum class NodeCount : std::uint8_t { kGiven, kOne, kOpen };

  std::string name;
  Profile profile;
  int nodes = 1;
  NodeCount node_count = NodeCount::kGiven;
  int gpus_per_node = 8;
  Nic nic;
  Nvlink nvlink;
  std::string
      fabric;  // preset name, path, or the JSON text of an own fabric; empty = the default of the node type
  std::string fabric_place;  // file:line of an own fabric's JSON text

  std::string network;  // name of the network profile that gave the laws between domains

  std::int64_t ranks() const { return std::int64_t{nodes} * gpus_per_node; }
  // Bytes per second and direction of the network that one GPU reaches alone: its own ports, or one that it
  // shares.
  double gpu_network() const {
    return nic.bandwidth * std::max(1.0, static_cast<double>(nic.ports_per_node) / gpus_per_node);
  }
  // A GPU's share of its node's ports, where all GPUs send at once.
  double network_per_gpu() const { return nic.bandwidth * nic.ports_per_node / gpus_per_node; }
  // All ports of an NVLink domain: it may be several nodes, or a part of one.
  double domain_network() const { return network_per_gpu() * nvlink.domain; }
  int node_of(std::int64_t rank) const { return static_cast<int>(rank / gpus_per_node); }
  int local_gpu(std::int64_t rank) const { return static_cast<int>(rank % gpus_per_node); }
  // Index of the NVLink domain of a rank; equal indices mean no network in between.
  std::int64_t domain_of(std::int64_t rank) const { return rank / nvlink.domain; }

  // The same machines, so many nodes of them that `gpus` GPUs find room. Throws InputError beyond 2^20 nodes.
  Cluster holding(std::int64_t gpus) const;

  // A built-in name with its node count ("dgx-h100x4", "gb200-nvl72x2", "echo-h800x2"), one without it
  // ("dgx-h100"; also as people call it: "h100", "p5en"), or the path of a cluster file. Throws InputError
  // for an unknown name (with the closest), an unknown key or an impossible value.
  static Cluster load(const std::string& name_or_path);
  // A string as above, or an object {"profile", "nodes", "gpus_per_node", "nic", "nvlink", "gpu", "fabric",
  // "rails"}; what is not given comes from the profile. {"base": "dgx-h100x4", ...} starts from a built-in
  // one.
  static Cluster load(const JsonNode& node);
  // Returns a copy in which the keys of such an object ("profile", "nodes", "nic", ...) replace its own.
  Cluster changed(const JsonNode& object) const;
  // Returns what load() reads back to an equal cluster: the name of a built-in one that it equals, or an
  // object with every number that can be set.
  nlohmann::ordered_json to_json() const;
  // Patterns of the built-in names, "dgx-h100xN", and what each is.
  struct Pattern {
    std::string name;
    std::string description;
  };
  static std::vector<Pattern> patterns();
};

}  // namespace moesim::models
