// The time of one collective across nodes (law "network").
//
//   T = latency + latency_per_node (N-1) + latency_per_rank (n-1) + W / B
//
// W: bytes through the bottleneck, B: its bandwidth at this group.
//   ring and tree operations: W = (n-1)/n S (all_reduce twice that); the ring crosses every node once per
//   channel, so
//     B = min(g x connection, node) with g ranks in the fullest domain (docs/calibration.md).
//   all_to_all: every rank sends the share of its buffer that leaves the node, W = (1 - g/n) S, through its
//   own port:
//     B = min(connection x peers, port, node / g).
#pragma once

#include <string>

#include "models/profile.h"

namespace moesim::models {

struct Cluster;
struct GroupShape;

struct NetworkCurve {
  bool pairwise = false;
  double wire_factor = 1;  // 2 for all_reduce
  double latency = 0;
  double latency_per_node = 0;
  double latency_per_rank = 0;
  double connection = 0;   // bytes/s of one rank's connection to one other node
  double port = 0;         // bytes/s of one rank's own port
  double node = 0;         // bytes/s of all ports of a node
  double nic_latency = 0;  // seconds added per node by the cluster, 0 = as measured
  double factor = 1;

  static NetworkCurve from(const ParameterSet& set, const std::string& key, const Cluster& cluster);
  // Seconds for nccl-tests size `size`.
  double seconds(const GroupShape& shape, double size) const;
};

}  // namespace moesim::models
