#include "sim/network/fabric.h"

#include <fmt/format.h>

#include <algorithm>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <boost/graph/strong_components.hpp>

#include "base/check.h"

namespace moesim::sim {

std::string_view name(NodeKind kind) {
  static constexpr std::string_view kNames[] = {"gpu", "nvswitch", "pcie", "nic", "leaf", "spine", "core"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace {

using Boost = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, boost::no_property,
                                    boost::property<boost::edge_index_t, std::uint32_t>>;

// Restricts a search to nodes through which traffic to `target` may pass.
struct LeadsTo {
  const Boost* graph = nullptr;
  const std::vector<FabricNode>* nodes = nullptr;
  std::uint32_t target = 0;

  bool operator()(const Boost::edge_descriptor& link) const {
    const auto to = boost::target(link, *graph);
    return to == target || (*nodes)[to].forwards;
  }
};

struct Forwards {
  const std::vector<FabricNode>* nodes = nullptr;
  bool operator()(Boost::vertex_descriptor node) const { return (*nodes)[node].forwards; }
};

}  // namespace

struct Fabric::Graph {
  Boost boost;
  std::vector<FabricNode> nodes;
  std::vector<FabricLink> links;
  std::vector<std::vector<std::uint32_t>> out, in;  // links by node
  std::vector<std::uint32_t> gpus;
  Multipath multipath = Multipath::hash;
  std::vector<std::uint32_t> domains;  // by GPU

  std::uint32_t add(FabricNode node) {
    nodes.push_back(std::move(node));
    out.emplace_back();
    in.emplace_back();
    return static_cast<std::uint32_t>(boost::add_vertex(boost));
  }

  // Returns whether all GPUs have links to and from one strongly connected part of the network: then all GPUs
  // reach each other. Time grows with the links only.
  bool all_meet() const {
    const boost::filtered_graph<Boost, boost::keep_all, Forwards> inner(boost, {}, Forwards{&nodes});
    std::vector<int> part(nodes.size(), -1);
    const int parts = boost::strong_components(
        inner, boost::make_iterator_property_map(part.begin(), boost::get(boost::vertex_index, boost)));
    if (parts == 0) return false;
    std::vector<std::size_t> size(static_cast<std::size_t>(parts), 0);
    for (const int p : part)
      if (p >= 0) ++size[static_cast<std::size_t>(p)];
    const auto largest = static_cast<int>(std::max_element(size.begin(), size.end()) - size.begin());
    std::vector<bool> enters(nodes.size()), leaves(nodes.size());
    for (std::size_t node = 0; node < nodes.size(); ++node)
      enters[node] = leaves[node] = part[node] == largest;
    for (const FabricLink& link : links) {
      if (part[link.to] == largest) enters[link.from] = true;
      if (part[link.from] == largest) leaves[link.to] = true;
    }
    return std::all_of(gpus.begin(), gpus.end(),
                       [&](std::uint32_t gpu) { return enters[gpu] && leaves[gpu]; });
  }
};

Fabric::Fabric() : graph_(std::make_unique<Graph>()) {}
Fabric::~Fabric() = default;
Fabric::Fabric(Fabric&&) noexcept = default;
Fabric& Fabric::operator=(Fabric&&) noexcept = default;

std::uint32_t Fabric::add_gpu(std::string name, std::uint32_t domain, bool forwards) {
  const std::uint32_t node = graph_->add({NodeKind::gpu, std::move(name), forwards});
  graph_->gpus.push_back(node);
  graph_->domains.push_back(domain);
  return node;
}

std::uint32_t Fabric::add_node(NodeKind kind, std::string name) {
  check(kind != NodeKind::gpu, "GPUs are added by add_gpu");
  return graph_->add({kind, std::move(name), true});
}

void Fabric::add_link(std::uint32_t from, std::uint32_t to, double capacity, Time latency,
                      double connection_cap) {
  check(from < graph_->nodes.size() && to < graph_->nodes.size() && from != to,
        "a link joins two known nodes");
  const auto id = static_cast<std::uint32_t>(graph_->links.size());
  graph_->links.push_back({from, to, capacity, latency, connection_cap});
  boost::add_edge(from, to, id, graph_->boost);
  graph_->out[from].push_back(id);
  graph_->in[to].push_back(id);
}

void Fabric::add_cable(std::uint32_t a, std::uint32_t b, double capacity, Time latency,
                       double connection_cap) {
  add_link(a, b, capacity, latency, connection_cap);
  add_link(b, a, capacity, latency, connection_cap);
}

void Fabric::set_multipath(Multipath multipath) { graph_->multipath = multipath; }

std::size_t Fabric::gpu_count() const { return graph_->gpus.size(); }

std::uint32_t Fabric::gpu_node(std::size_t gpu) const { return graph_->gpus[gpu]; }

std::uint32_t Fabric::domain(std::size_t gpu) const { return graph_->domains[gpu]; }

std::span<const FabricNode> Fabric::nodes() const { return graph_->nodes; }

std::span<const FabricLink> Fabric::links() const { return graph_->links; }

std::vector<double> Fabric::capacities() const {
  std::vector<double> result;
  result.reserve(graph_->links.size());
  for (const FabricLink& link : graph_->links) result.push_back(link.capacity);
  return result;
}

std::span<const std::uint32_t> Fabric::links_from(std::uint32_t node) const { return graph_->out[node]; }

std::span<const std::uint32_t> Fabric::links_to(std::uint32_t node) const { return graph_->in[node]; }

Multipath Fabric::multipath() const { return graph_->multipath; }

std::vector<std::uint32_t> Fabric::distances_to(std::uint32_t target) const {
  std::vector<std::uint32_t> result(graph_->nodes.size(), kNoWay);
  result[target] = 0;
  const boost::filtered_graph<Boost, LeadsTo> open(graph_->boost,
                                                   LeadsTo{&graph_->boost, &graph_->nodes, target});
#ifndef __clang_analyzer__  // it mistakes the counts of Boost's shared arrays for freed memory
  boost::breadth_first_search(
      boost::make_reverse_graph(open), target,
      boost::visitor(boost::make_bfs_visitor(boost::record_distances(result.data(), boost::on_tree_edge()))));
#endif
  return result;
}

std::vector<std::string> Fabric::problems() const {
  constexpr std::size_t kPairsNamed = 5;
  constexpr double kSlowest = 1e3, kFastest = 1e15;
  std::vector<std::string> result;
  if (gpu_count() == 0) result.emplace_back("the fabric has no GPUs");
  const auto& nodes = graph_->nodes;
  for (const FabricLink& link : graph_->links) {
    const std::string where = fmt::format("link {} -> {}", nodes[link.from].name, nodes[link.to].name);
    if (!(link.capacity >= kSlowest && link.capacity <= kFastest))
      result.push_back(
          fmt::format("{}: bandwidth {} B/s is not between 1 kB/s and 1 PB/s", where, link.capacity));
    if (link.latency < Time::kZero || link.latency > Time::from_us(1e6))
      result.push_back(fmt::format("{}: latency {} us is not between 0 and 1 s", where, link.latency.us()));
    if (!(link.connection_cap == 0 || (link.connection_cap >= kSlowest && link.connection_cap <= kFastest)))
      result.push_back(fmt::format("{}: connection cap {} B/s is neither 0 nor between 1 kB/s and 1 PB/s",
                                   where, link.connection_cap));
  }
  if (graph_->all_meet()) return result;
  // Names the pairs that do not reach each other, if any: a search for each GPU, until enough are named.
  constexpr std::size_t kMostWork = 100'000'000;  // links, nodes and GPUs visited
  std::size_t unreachable = 0;
  for (std::size_t to = 0; to < gpu_count(); ++to) {
    const std::vector<std::uint32_t> distance = distances_to(graph_->gpus[to]);
    for (std::size_t from = 0; from < gpu_count(); ++from) {
      if (distance[graph_->gpus[from]] != kNoWay) continue;
      if (++unreachable <= kPairsNamed)
        result.push_back(fmt::format("no way from {} to {}", nodes[graph_->gpus[from]].name,
                                     nodes[graph_->gpus[to]].name));
    }
    if (unreachable > kPairsNamed &&
        (to + 1) * (graph_->links.size() + nodes.size() + gpu_count()) > kMostWork) {
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
