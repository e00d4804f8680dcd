#include "sim/network/fabric.h"

#include <fmt/format.h>

#include <algorithm>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/strong_components.hpp>

#include "base/check.h"

namespace moesim::sim {

std::string_view name(NodeKind kind) {
  static constexpr std::string_view kNames[] = {"gpu", "nvswitch", "pcie", "nic", "leaf", "spine", "core"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace {

struct Forwards {
  const std::vector<FabricNode>* nodes = nullptr;
  bool operator()(std::size_t node) const { return (*nodes)[node].forwards; }
};

}  // namespace

std::uint32_t Fabric::add(FabricNode node) {
  nodes_.push_back(std::move(node));
  out_.emplace_back();
  in_.emplace_back();
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

std::uint32_t Fabric::add_gpu(std::string name, std::uint32_t domain, bool forwards) {
  gpus_.push_back(add({NodeKind::gpu, std::move(name), forwards}));
  domains_.push_back(domain);
  return gpus_.back();
}

std::uint32_t Fabric::add_node(NodeKind kind, std::string name) {
  check(kind != NodeKind::gpu, "GPUs are added by add_gpu");
  return add({kind, std::move(name), true});
}

void Fabric::add_link(std::uint32_t from, std::uint32_t to, double capacity, Time latency,
                      double connection_cap) {
  check(from < nodes_.size() && to < nodes_.size() && from != to, "a link joins two known nodes");
  const auto id = static_cast<std::uint32_t>(links_.size());
  links_.push_back({from, to, capacity, latency, connection_cap});
  out_[from].push_back(id);
  in_[to].push_back(id);
}

void Fabric::add_cable(std::uint32_t a, std::uint32_t b, double capacity, Time latency,
                       double connection_cap) {
  add_link(a, b, capacity, latency, connection_cap);
  add_link(b, a, capacity, latency, connection_cap);
}

std::vector<double> Fabric::capacities() const {
  std::vector<double> result;
  result.reserve(links_.size());
  for (const FabricLink& link : links_) result.push_back(link.capacity);
  return result;
}

std::vector<std::uint32_t> Fabric::distances_to(std::uint32_t target) const {
  std::vector<std::uint32_t> result(nodes_.size(), kNoWay), reached{target};
  result[target] = 0;
  for (std::size_t i = 0; i < reached.size(); ++i) {  // breadth first, backwards
    const std::uint32_t to = reached[i];
    if (to != target && !nodes_[to].forwards) continue;
    for (const std::uint32_t link : in_[to]) {
      const std::uint32_t from = links_[link].from;
      if (result[from] != kNoWay) continue;
      result[from] = result[to] + 1;
      reached.push_back(from);
    }
  }
  return result;
}

// Returns whether all GPUs have links to and from one strongly connected part of the network: then all GPUs
// reach each other. Time grows with the links only.
bool Fabric::all_meet() const {
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;
  Graph graph(nodes_.size());
  for (const FabricLink& link : links_) boost::add_edge(link.from, link.to, graph);
  const boost::filtered_graph<Graph, boost::keep_all, Forwards> inner(graph, {}, Forwards{&nodes_});
  std::vector<int> part(nodes_.size(), -1);
  const int parts = boost::strong_components(
      inner, boost::make_iterator_property_map(part.begin(), boost::get(boost::vertex_index, graph)));
  if (parts == 0) return false;
  std::vector<std::size_t> size(static_cast<std::size_t>(parts), 0);
  for (const int p : part)
    if (p >= 0) ++size[static_cast<std::size_t>(p)];
  const auto largest = static_cast<int>(std::ranges::max_element(size) - size.begin());
  std::vector<bool> enters(nodes_.size()), leaves(nodes_.size());
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    enters[node] = leaves[node] = part[node] == largest;
  for (const FabricLink& link : links_) {
    if (part[link.to] == largest) enters[link.from] = true;
    if (part[link.from] == largest) leaves[link.to] = true;
  }
  return std::ranges::all_of(gpus_, [&](std::uint32_t gpu) { return enters[gpu] && leaves[gpu]; });
}

std::vector<std::string> Fabric::problems() const {
  constexpr std::size_t kPairsNamed = 5;
  constexpr double kSlowest = 1e3, kFastest = 1e15;
  std::vector<std::string> result;
  if (gpu_count() == 0) result.emplace_back("the fabric has no GPUs");
  for (const FabricLink& link : links_) {
    const std::string where = fmt::format("link {} -> {}", nodes_[link.from].name, nodes_[link.to].name);
    if (!(link.capacity >= kSlowest && link.capacity <= kFastest))
      result.push_back(
          fmt::format("{}: bandwidth {} B/s is not between 1 kB/s and 1 PB/s", where, link.capacity));
    if (link.latency < Time::kZero || link.latency > Time::from_us(1e6))
      result.push_back(fmt::format("{}: latency {} us is not between 0 and 1 s", where, link.latency.us()));
    if (!(link.connection_cap == 0 || (link.connection_cap >= kSlowest && link.connection_cap <= kFastest)))
      result.push_back(fmt::format("{}: connection cap {} B/s is neither 0 nor between 1 kB/s and 1 PB/s",
                                   where, link.connection_cap));
  }
  if (all_meet()) return result;
  // Names the pairs that do not reach each other, if any: a search for each GPU, until enough are named.
  constexpr std::size_t kMostWork = 100'000'000;  // links, nodes and GPUs visited
  std::size_t unreachable = 0;
  for (std::size_t to = 0; to < gpu_count(); ++to) {
    const std::vector<std::uint32_t> distance = distances_to(gpus_[to]);
    for (std::size_t from = 0; from < gpu_count(); ++from) {
      if (distance[gpus_[from]] != kNoWay) continue;
      if (++unreachable <= kPairsNamed)
        result.push_back(
            fmt::format("no way from {} to {}", nodes_[gpus_[from]].name, nodes_[gpus_[to]].name));
    }
    if (unreachable > kPairsNamed && (to + 1) * (links_.size() + nodes_.size() + gpu_count()) > kMostWork) {
      result.push_back(
          fmt::format("no way between at least {} more pairs of GPUs", unreachable - kPairsNamed));
      return result;
    }
  }
  if (unreachable > kPairsNamed)
    result.push_back(fmt::format("no way between {} more pairs of GPUs", unreachable - kPairsNamed));
  return result;
}

}  // namespace moesim::sim
