// A measured network between NVLink domains: ports, line rate, and the laws of its traffic.
//
// A profile is a JSON file, "schema": "moesim.network/1" (docs/models.md lists its keys). The files of
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

// Suffix of the key of a dispatch kernel's law across domains: "ep/deepep_v1_normal_dispatch@bf16/network".
inline constexpr std::string_view kNetworkLaw = "/network";
// A law "factor" of a network: the ratio of the time of token exchanges across nodes inside a training step
// to their benchmark. In a step ranks drift, computing runs beside them and the host's threads serve both.
inline constexpr const char* kExchangeInStep = "exchange/in_step/network";
// Name of the stand-in for a network that was not measured: all measured networks pooled.
inline constexpr std::string_view kLineRate = "line-rate";

struct NetworkProfile {
  std::string name;
  std::string kind;  // one of kinds()
  int ports_per_node = 0;
  int gpus_per_node = 8;
  double line_rate = 0;  // bytes per second and direction of a port
  bool rails = false;    // GPU i of every node connects to the same switches
  std::string provenance;
  std::vector<std::string> gaps;
  std::map<std::string, ParameterSet, std::less<>> laws;  // by key, "collective/all_gather/network"

  // Loads a built-in name or a file. Throws InputError for an unknown name (with the closest one), an
  // unreadable file, an unknown key or kind.
  static NetworkProfile load(const std::string& name_or_path);
  static NetworkProfile parse(std::string_view json, const std::string& file);
  static const std::vector<std::string>& names();  // of the built-in networks, sorted
  // "infiniband", "roce", "efa", "tcpx", "slingshot", "nvlink-rack", "any".
  static const std::vector<std::string>& kinds();
  std::string to_json() const;
};

// Replaces the cluster's network laws by those of `network`. Laws that the network lacks come from all
// measured networks pooled (kLineRate), marked as derived: their residual is the scatter between networks.
// HybridEP laws that this GPU lacks inside a domain come from a relative. Ports and rates of the cluster
// stay.
void use_network(Cluster& cluster, const NetworkProfile& network);
// Whether a law is known of a built-in network of the same kind as `network`, a name or a file, with ports that are no
// faster.
bool has_slower_kin(const std::string& network, const std::string& law);
// Completes the law of a dispatch kernel on a network with the share of the GPU's own links that it reaches:
// from the profile's law of the same kernel inside a node, or the median of the measured kernels.
ParameterSet with_links(ParameterSet set, const Profile& profile, const std::string& key);
// Returns the network of the built-in machines with this GPU; kLineRate where there is none.
std::string usual_network(const Profile& profile);
// Returns whether a profile contains network laws of its own (measured by a user).
bool has_network_laws(const Profile& profile);
// Returns the first thing to know about a network that was not measured; empty for a measured one.
std::string network_note(const Cluster& cluster);

}  // namespace moesim::models
