// The time of one collective across nodes (law "network").
//
//   T = latency + latency_per_node (N-1) + (latency_per_rank + latency_per_peer (h-1)) (n-1)
//     + latency_per_octave log2 N + (ramp_per_rank (n-1) + ramp_per_octave log2 N) S / (S + ramp_bytes) + W /
//     B
//
// n ranks in N NVLink domains (on most machines a domain is a node), g in the fullest one, h on the fullest
// node; S is the nccl-tests "size". The latency counts the steps of a ring; the ramp is the cost of the step
// to the large-message protocol. W: bytes through the bottleneck, B: its bandwidth:
//   ring and tree operations: W = (n-1)/n S, all_reduce twice that. The ring crosses every node once per
//   channel, so
//     B = min(g connection, domain). The share `hierarchy` of an all_reduce is reduced inside the nodes
//     first:
//     there the network carries 2 (N-1)/N S.
//   all_to_all: every rank sends the share of its buffer that leaves its domain through its own ports,
//     W = (1 - g/n) S and B = min(connection x peers, port, domain / g); of domains with unequal numbers of
//     ranks the slower counts.
//   send_recv: the message, W = S and B = min(connection, port).
// B falls with (N/2)^-spread as the fabric fills. Messages collide more the more of them leave a node:
// (N/2)^-(spread + collision log2 g).
// A law that the user's rows refined also has factors at single calls (measured_calls.h).
#pragma once

#include <string>

#include "models/costs/measured_calls.h"
#include "models/hardware/profile.h"

namespace moesim::models {

struct Cluster;
struct GroupShape;

struct NetworkCurve {
  bool pairwise = false;
  bool message = false;    // send_recv: the whole message crosses
  double wire_factor = 1;  // 2 for all_reduce
  double latency = 0;
  double latency_per_node = 0;
  double latency_per_rank = 0;
  double latency_per_peer = 0;
  double ramp_per_rank = 0;
  double latency_per_octave = 0;
  double ramp_per_octave = 0;
  double ramp_bytes = 1;
  double connection = 0;  // bytes/s of one rank's connection to one other domain
  double port = 0;        // bytes/s of one rank's own ports
  double domain = 0;      // bytes/s of all ports of a domain
  double spread = 0;
  double collision = 0;
  double hierarchy = 0;
  double factor = 1;
  Corrections corrections;

  // Takes port rates from the cluster and the shares reached from the law. Throws InputError for a cluster
  // without network bandwidth.
  static NetworkCurve from(const ParameterSet& set, const std::string& key, const Cluster& cluster);
  // Returns seconds for nccl-tests size `size`.
  double seconds(const GroupShape& shape, double size) const;
};

}  // namespace moesim::models
