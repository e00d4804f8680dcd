// The shape of a process group on a cluster.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moesim::models {

struct Cluster;

// The shape of a process group on a cluster: everything that a collective's time depends on.
struct GroupShape {
  int ranks = 1;
  int domains = 1;            // NVLink domains touched
  int max_per_domain = 1;     // members in the fullest domain
  int min_per_domain = 1;     // members in the emptiest domain
  int nodes = 1;              // nodes touched (differs from domains on rack-scale NVLink)
  int max_per_node = 1;       // members on the fullest node
  double pair_bandwidth = 0;  // for a two-rank group across domains with uneven ports, bytes/s; else 0
  std::vector<std::int32_t> domain_of;  // by member index, numbered 0.. in order of appearance

  bool across_domains() const { return domains > 1; }

  // Throws InputError for a rank outside the cluster or an empty group.
  static GroupShape of(const Cluster& cluster, std::span<const std::int32_t> members);
  // `size` members, `stride` ranks apart, from rank 0; with `block` > 1, blocks of that many members start
  // `apart` ranks apart.
  static GroupShape strided(const Cluster& cluster, std::int64_t size, std::int64_t stride,
                            std::int64_t block = 1, std::int64_t apart = 0);
  // `per_domain` ranks on each of `domains` NVLink domains (domain-major member order).
  static GroupShape uniform(int domains, int per_domain);
};

struct LinkLoad {
  std::string from, to;  // names of the fabric's nodes
  double bytes = 0;
  double utilisation = 0;  // share of its capacity over the timeline
};

}  // namespace moesim::models
