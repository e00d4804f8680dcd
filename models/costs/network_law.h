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
// A law that the user's rows refined also has factors at single calls (Corrections).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim::models {

struct Cluster;
struct GroupShape;

// Corrections of a network's law at single calls that the user measured.
//
// A law has one shape for all sizes and groups, and NCCL changes algorithm and protocol with both. A refined
// law (calibrate refine) therefore holds factors C at calls, "correction/<domains>/<ranks of a domain>/<bytes>"
// with the nccl-tests "size". Elsewhere log C is the mean of a Gaussian process through them, with the
// correlation of an Ornstein-Uhlenbeck process in the logarithms of size and group, which follows jumps without
// swinging past them (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", 2006, 2.2 and
// 4.2.1). C is 1 far from all of them. Beyond the smallest and the largest measured size C stays as it is
// there: one term of the law dominates, and is off by the same factor.
//
// The parameter "correction_sigma" s is the log standard deviation of the process: how far calls differ from the
// law of their network. Given the measured calls, log C at another one still varies by s sqrt(1 - k' K^-1 k): by
// next to nothing where it was measured, and by s far away (same source, 2.26). A drawn profile has one normal
// number for all calls of a law (ParameterSet::beyond), so that equal calls of two dispatchers share it.

// Binary logarithms of a call's domains, ranks of the fullest domain, and size.
struct MeasuredCall {
  double domains = 0, ranks = 0, bytes = 0;

  static MeasuredCall of(const GroupShape& shape, double size);
  std::string name() const;
  // Returns the correlation of log C between two calls.
  double likeness(const MeasuredCall& other) const;
};

class Corrections {
 public:
  static constexpr std::string_view kSigma = "correction_sigma";
  // Returns the call of every parameter, nullopt for one that is no correction. Throws InputError naming `key`
  // for a malformed name.
  static std::vector<std::optional<MeasuredCall>> calls_of(const ParameterSet& set, const std::string& key);
  static Corrections from(const ParameterSet& set, const std::string& key);
  // Returns the factor on the time of a call.
  double at(const GroupShape& shape, double size) const;
  // Returns the log standard deviation of that factor where the measured calls are known exactly.
  double sigma(const GroupShape& shape, double size) const;

 private:
  std::vector<MeasuredCall> calls_;
  std::vector<double> lower_, weights_;  // of the calls' correlations: the Cholesky factor; K^-1 log C
  double sigma_ = 0;
  double smallest_ = 0, largest_ = 0;
};

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
