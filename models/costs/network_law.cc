#include "models/costs/network_law.h"

#include <algorithm>
#include <cmath>

#include "base/input_error.h"
#include "models/costs/collectives.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

NetworkCurve NetworkCurve::from(const ParameterSet& set, const std::string& key, const Cluster& cluster) {
  NetworkCurve curve;
  curve.message = key.find("send_recv") != std::string::npos;
  curve.pairwise = curve.message || key.find("all_to_all") != std::string::npos;
  curve.wire_factor = key.find("all_reduce") != std::string::npos ? 2 : 1;
  curve.latency = set.get("latency", 0);
  curve.latency_per_node = set.get("latency_per_node", 0);
  curve.latency_per_rank = set.get("latency_per_rank", 0);
  curve.latency_per_peer = set.get("latency_per_peer", 0);
  curve.ramp_per_rank = set.get("ramp_per_rank", 0);
  curve.latency_per_octave = set.get("latency_per_octave", 0);
  curve.ramp_per_octave = set.get("ramp_per_octave", 0);
  curve.ramp_bytes = set.get("ramp_bytes", 1);
  curve.spread = set.get("spread", 0);
  curve.collision = set.get("collision", 0);
  curve.hierarchy = set.get("hierarchy", 0);
  curve.factor = set.factor;
  curve.corrections = Corrections::from(set, key);
  const double port = cluster.gpu_network();
  if (port <= 0)
    throw InputError("cluster " + cluster.name + " has no network bandwidth; give nic.bandwidth");
  curve.connection = port * set.get("connection_share", 0.75);
  if (cluster.nic.per_connection_cap > 0)
    curve.connection = std::min(curve.connection, cluster.nic.per_connection_cap);
  curve.port = port * set.get("port_share", 0.9);
  curve.domain = cluster.domain_network() * set.get("node_share", 0.8);
  if (cluster.nic.latency > 0) curve.latency_per_node = std::max(curve.latency_per_node, cluster.nic.latency);
  return curve;
}

double NetworkCurve::seconds(const GroupShape& shape, double size) const {
  const double n = shape.ranks;
  const double g = shape.max_per_domain;
  const double nodes = shape.domains;
  const double octaves = latency_per_octave + ramp_per_octave > 0 ? std::log2(nodes) : 0;
  const double ramp = (ramp_per_rank * (n - 1) + ramp_per_octave * octaves) * size / (size + ramp_bytes);
  const double start = latency + latency_per_node * (nodes - 1) +
                       (latency_per_rank + latency_per_peer * (shape.max_per_node - 1)) * (n - 1) +
                       latency_per_octave * octaves + ramp;
  double bytes = 0, bandwidth = 0;
  if (message) {
    bytes = size;
    bandwidth = shape.pair_bandwidth > 0 ? shape.pair_bandwidth : std::min(connection, port);
  } else if (pairwise) {
    // Seconds per byte of the buffer: for a rank in the domain with the fewest, and for the ports of both
    // kinds of domain.
    const double few = shape.min_per_domain, own = 1 - few / n;
    const double rank = own / std::min(connection * (n - few), port);
    const double shared = std::max(g * (1 - g / n), few * own) / domain;
    bytes = own * size;
    bandwidth = shape.pair_bandwidth > 0 ? shape.pair_bandwidth : own / std::max(rank, shared);
  } else {
    const double ring = (n - 1) / n, inter = (nodes - 1) / nodes;
    bytes = wire_factor * size * (wire_factor > 1 ? ring + hierarchy * (inter - ring) : ring);
    bandwidth = std::min(connection * shape.min_per_domain, domain);
  }
  const double falling = spread + (message ? collision * std::log2(g) : 0);
  if (falling > 0 && nodes > 2) bandwidth *= std::pow(nodes / 2, -falling);
  return factor * corrections.at(shape, size) * (start + bytes / bandwidth);
}

}  // namespace moesim::models
