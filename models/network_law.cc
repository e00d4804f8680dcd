#include "models/network_law.h"

#include <algorithm>

#include "base/input_error.h"
#include "models/cluster.h"
#include "models/collectives.h"

namespace moesim::models {

NetworkCurve NetworkCurve::from(const ParameterSet& set, const std::string& key, const Cluster& cluster) {
  NetworkCurve curve;
  curve.pairwise = key.find("all_to_all") != std::string::npos || key.find("send_recv") != std::string::npos;
  curve.wire_factor = key.find("all_reduce") != std::string::npos ? 2 : 1;
  curve.latency = set.get("latency", 0);
  curve.latency_per_node = set.get("latency_per_node", 0);
  curve.latency_per_rank = set.get("latency_per_rank", 0);
  curve.factor = set.factor;
  const double port = cluster.nic.bandwidth;
  if (port <= 0)
    throw InputError("cluster " + cluster.name + " has no network bandwidth; give nic.bandwidth");
  curve.connection = port * set.get("connection_share", 0.75);
  if (cluster.nic.per_connection_cap > 0)
    curve.connection = std::min(curve.connection, cluster.nic.per_connection_cap);
  curve.port = port * set.get("port_share", 0.9);
  curve.node = cluster.nic.ports_per_node * port * set.get("node_share", 0.8);
  if (cluster.nic.latency > 0) curve.latency_per_node = std::max(curve.latency_per_node, cluster.nic.latency);
  return curve;
}

double NetworkCurve::seconds(const GroupShape& shape, double size) const {
  const double n = shape.ranks;
  const double g = shape.max_per_domain;
  const double start = latency + latency_per_node * (shape.domains - 1) + latency_per_rank * (n - 1);
  double bytes = 0, bandwidth = 0;
  if (pairwise) {
    bytes = (1 - g / n) * size;
    bandwidth = std::min({connection * (n - g), port, node / g});
    if (shape.pair_bandwidth > 0) bandwidth = shape.pair_bandwidth;
  } else {
    bytes = wire_factor * (n - 1) / n * size;
    bandwidth = std::min(connection * g, node);
  }
  return factor * (start + bytes / bandwidth);
}

}  // namespace moesim::models
