#include "models/hardware/group_shape.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/input_error.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

GroupShape GroupShape::of(const Cluster& cluster, std::span<const std::int32_t> members) {
  if (members.empty()) throw InputError("found an empty group, expected at least one rank");
  GroupShape shape;
  shape.ranks = static_cast<int>(members.size());
  shape.domain_of.reserve(members.size());
  std::vector<std::int64_t> domains, nodes;
  std::vector<int> count;
  std::int64_t highest = 0;
  for (const std::int32_t rank : members) {
    if (rank < 0 || rank >= cluster.ranks())
      throw InputError("found rank " + std::to_string(rank) + ", expected one of the " +
                       std::to_string(cluster.ranks()) + " ranks of cluster " + cluster.name);
    const std::int64_t domain = cluster.domain_of(rank);
    // Members mostly come in order of their domains.
    const bool fresh = domains.empty() || domain > highest;
    auto found = fresh ? domains.rend() : std::find(domains.rbegin(), domains.rend(), domain);
    highest = std::max(highest, domain);
    std::size_t at = 0;
    if (found == domains.rend()) {
      at = domains.size();
      domains.push_back(domain);
      count.push_back(0);
    } else {
      at = static_cast<std::size_t>(domains.rend() - found) - 1;
    }
    ++count[at];
    shape.domain_of.push_back(static_cast<std::int32_t>(at));
    nodes.push_back(cluster.node_of(rank));
  }
  std::sort(nodes.begin(), nodes.end());
  for (auto at = nodes.begin(); at != nodes.end();) {
    const auto next = std::upper_bound(at, nodes.end(), *at);
    shape.max_per_node = std::max(shape.max_per_node, static_cast<int>(next - at));
    at = next;
  }
  shape.nodes = static_cast<int>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
  shape.domains = static_cast<int>(domains.size());
  shape.max_per_domain = *std::max_element(count.begin(), count.end());
  shape.min_per_domain = *std::min_element(count.begin(), count.end());
  if (shape.ranks == 2 && shape.domains == 2 && !cluster.nic.gpu_bandwidth.empty()) {
    const auto& rate = cluster.nic.gpu_bandwidth;
    shape.pair_bandwidth = std::min(rate[static_cast<std::size_t>(cluster.local_gpu(members[0]))],
                                    rate[static_cast<std::size_t>(cluster.local_gpu(members[1]))]);
  }
  return shape;
}

GroupShape GroupShape::strided(const Cluster& cluster, std::int64_t size, std::int64_t stride,
                               std::int64_t block, std::int64_t apart) {
  std::vector<std::int32_t> members;
  for (std::int64_t i = 0; i < size; ++i)
    members.push_back(
        static_cast<std::int32_t>(block > 1 ? i % block * stride + i / block * apart : i * stride));
  return of(cluster, members);
}

GroupShape GroupShape::uniform(int domains, int per_domain) {
  check(domains >= 1 && per_domain >= 1, "a group has at least one rank");
  GroupShape shape;
  shape.ranks = domains * per_domain;
  shape.domains = shape.nodes = domains;
  shape.max_per_domain = shape.min_per_domain = shape.max_per_node = per_domain;
  shape.domain_of.resize(static_cast<std::size_t>(shape.ranks));
  for (int i = 0; i < shape.ranks; ++i) shape.domain_of[static_cast<std::size_t>(i)] = i / per_domain;
  return shape;
}

}  // namespace moesim::models
