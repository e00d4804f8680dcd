// A network between NVLink domains as somebody measured it: ports, line rate, and the laws of what travels
// over it.
//
// A profile is a JSON file, "schema": "moesim.network/1" (docs/models.md has its keys). The ones in
// calibration/profiles/network/ are built into the binary. Its laws are shares of the port's line rate and
// seconds, so that they hold for other GPUs on the same network.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Cluster;

// Ends the key of a dispatch kernel's law across domains: "ep/deepep_v1_normal_dispatch@bf16/network".
inline constexpr std::string_view kNetworkLaw = "/network";
// The law "factor" of a network: how many times as long exchanges of tokens across nodes take inside a
// training step as in their benchmark, where ranks drift, computing runs beside them and the host's threads
// serve both.
inline constexpr const char* kExchangeInStep = "exchange/in_step/network";
// The network that stands for one that nobody measured: all measured ones at once.
inline constexpr std::string_view kLineRate = "line-rate";

struct NetworkProfile {
  std::string name;
  std::string kind;  // one of kinds()
  int ports_per_node = 0;
  int gpus_per_node = 8;
  double line_rate = 0;  // bytes per second and direction of a port
  bool rails = false;    // GPU i of every node is on the same switches
  std::string provenance;
  std::vector<std::string> gaps;
  std::map<std::string, ParameterSet, std::less<>> laws;  // by key, "collective/all_gather/network"

  // A built-in name or the path of a file. Throws InputError for an unknown name (with the closest one), an
  // unreadable file, an unknown key or kind.
  static NetworkProfile load(const std::string& name_or_path);
  static NetworkProfile parse(std::string_view json, const std::string& file);
  static const std::vector<std::string>& names();  // of the built-in ones, sorted
  // "infiniband", "roce", "efa", "tcpx", "slingshot", "nvlink-rack", "any".
  static const std::vector<std::string>& kinds();
  std::string to_json() const;
};

// Gives the cluster the network's laws in place of those that its profile has. What the network did not
// measure is taken from all measured networks together (kLineRate), as derived: its residual is their
// scatter. What nobody measured of HybridEP inside a domain of this GPU comes from a relative. Leaves ports
// and rates of the cluster as they are.
void use_network(Cluster& cluster, const NetworkProfile& network);
// The law of a dispatch kernel on a network, completed with what it reaches of the GPU's own links: by the
// profile's law of the same kernel inside a node, or the middle of the measured kernels.
ParameterSet with_links(ParameterSet set, const Profile& profile, const std::string& key);
// The network of the built-in machines with this GPU; kLineRate where there is none.
std::string usual_network(const Profile& profile);
// Whether a profile brings laws of a network of its own (one that a user measured).
bool has_network_laws(const Profile& profile);
// What a reader should know first of a network that nobody measured; empty where somebody did.
std::string network_note(const Cluster& cluster);

}  // namespace moesim::models
