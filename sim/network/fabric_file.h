// Fabrics from files: JSON or GraphML.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/json_reader.h"
#include "sim/network/fabric.h"
#include "sim/network/fabric_presets.h"

namespace moesim::sim {

// Limit on the GPUs of a fabric, from a file or for a cluster.
inline constexpr std::int64_t kMostFabricGpus = 1 << 17;
// Limit on the nesting of a GraphML file.
inline constexpr int kMostGraphmlDepth = 64;

// Reads either a preset by name with the numbers that differ from its defaults,
//   { "preset": "rail-tree", "nodes": 4, "nodes_per_leaf": 4, "spines": 4, "oversubscription": 2,
//     "multipath": "hash",
//     "node": { "gpus": 8, "nvlink_bandwidth": "450GBps", "nvlink_latency": "0.5us", "mesh": false,
//               "nics": 8, "nic_bandwidth": "400Gbps", "nic_latency": "1us", "connection_cap": "0GBps",
//               "pcie_bandwidth": "64GBps", "without_gpudirect": [0], "staging_bandwidth": "12GBps",
//               "staging_latency": "10us" } }
// (pod-tree: also "leaves_per_pod"; dragonfly: "routers", "nodes_per_router", "local_bandwidth",
// "global_bandwidth"), or a custom network:
//   { "nodes": [ { "name": "gpu0", "kind": "gpu", "domain": 0, "forwards": false }, ... ],
//     "links": [ { "from": "gpu0", "to": "leaf", "bandwidth": "50GBps", "latency": "1us", "cap": "25GBps",
//                  "duplex": true }, ... ], "multipath": "destination" }
// Kinds: gpu, nvswitch, pcie, nic, leaf, spine, core. A link has both directions unless "duplex" is false.
// Throws InputError for anything else, and for a fabric with problems(). A preset takes missing values from
// `defaults`.
struct FabricDefaults {
  std::uint32_t nodes = 1;
  NodeShape node;
};
Fabric read_fabric(const JsonNode& node, const FabricDefaults& defaults = {});

// Reads GraphML with the keys kind, domain, forwards of nodes and bandwidth (bytes per second), latency
// (seconds) and cap of edges; edges of an undirected graph have both directions. `file` is used in messages
// only.
Fabric parse_graphml_fabric(std::string_view text, const std::string& file);

// Reads JSON, or GraphML where the name ends in .graphml.
Fabric read_fabric_file(const std::filesystem::path& path, const FabricDefaults& defaults = {});

}  // namespace moesim::sim
