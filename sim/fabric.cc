#include "sim/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/reverse_graph.hpp>

#include "base/check.h"

namespace moesim::sim {

std::string_view name(NodeKind kind) {
  static constexpr std::string_view kNames[] = {"gpu", "nvswitch", "pcie", "nic", "leaf", "spine", "core"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace {

constexpr std::uint32_t kFar = std::numeric_limits<std::uint32_t>::max();

std::uint64_t mix(std::uint64_t x) {  // finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

// For one destination, the links that lead nearer to it from every node that may be on the way.
struct Router::Ways {
  std::vector<std::uint32_t> begin;  // by node
  std::vector<std::uint32_t> links;  // in the order in which they were added
};

struct Fabric::Graph {
  using Boost = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, boost::no_property,
                                      boost::property<boost::edge_index_t, std::uint32_t>>;

  Boost boost;
  std::vector<FabricNode> nodes;
  std::vector<FabricLink> links;
  std::vector<std::uint32_t> gpus;
  Multipath multipath = Multipath::hash;
  std::vector<std::uint32_t> domains;  // by GPU

  std::uint32_t add(FabricNode node) {
    nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(boost::add_vertex(boost));
  }

  // Whether what is on its way to `destination` may take the link.
  bool leads(const Boost::edge_descriptor& link, std::uint32_t destination) const {
    const auto to = boost::target(link, boost);
    return to == destination || nodes[to].forwards;
  }

  // Links from every node to `destination`, kFar where there is no way.
  std::vector<std::uint32_t> distances(std::uint32_t destination) const {
    std::vector<std::uint32_t> result(nodes.size(), kFar);
    result[destination] = 0;
    const auto leads_there = [this, destination](const Boost::edge_descriptor& link) {
      return leads(link, destination);
    };
    const boost::filtered_graph<Boost, std::function<bool(const Boost::edge_descriptor&)>> open(boost,
                                                                                                leads_there);
    const auto backwards = boost::make_reverse_graph(open);
    boost::breadth_first_search(backwards, destination,
                                boost::visitor(boost::make_bfs_visitor(
                                    boost::record_distances(result.data(), boost::on_tree_edge()))));
    return result;
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

Router::Router(const Fabric& fabric) : fabric_(fabric), ways_(fabric.gpu_count()) {}
Router::~Router() = default;

void Router::find(std::size_t from_gpu, std::size_t to_gpu, Route& route) {
  const Fabric::Graph& graph = *fabric_.graph_;
  check(from_gpu < ways_.size() && to_gpu < ways_.size(), "a route joins two GPUs of the fabric");
  route.links.clear();
  route.latency = Time::kZero;
  route.cap = 0;
  route.reaches = true;
  const std::uint32_t destination = graph.gpus[to_gpu];
  std::uint32_t node = graph.gpus[from_gpu];
  if (node == destination) return;
  if (!ways_[to_gpu]) {
    ways_[to_gpu] = std::make_unique<Ways>();
    Ways& ways = *ways_[to_gpu];
    const std::vector<std::uint32_t> distance = graph.distances(destination);
    ways.begin.reserve(distance.size() + 1);
    ways.begin.push_back(0);
    for (std::uint32_t at = 0; at < distance.size(); ++at) {
      if (distance[at] != kFar && at != destination) {
        for (const auto& link : boost::make_iterator_range(boost::out_edges(at, graph.boost)))
          if (distance[boost::target(link, graph.boost)] + 1 == distance[at] &&
              graph.leads(link, destination))
            ways.links.push_back(boost::get(boost::edge_index, graph.boost, link));
      }
      ways.begin.push_back(static_cast<std::uint32_t>(ways.links.size()));
    }
  }
  const Ways& ways = *ways_[to_gpu];
  const std::uint64_t pair = (std::uint64_t{from_gpu} << 32) ^ to_gpu;
  while (node != destination) {
    const std::uint32_t begin = ways.begin[node], choices = ways.begin[node + 1] - begin;
    if (choices == 0) {
      route.reaches = false;
      return;
    }
    std::uint64_t choice = 0;
    if (choices > 1)
      choice = (graph.multipath == Multipath::hash ? mix(mix(pair + 0x9e3779b97f4a7c15u) + node) : to_gpu) %
               choices;
    const std::uint32_t id = ways.links[begin + choice];
    const FabricLink& link = graph.links[id];
    route.links.push_back(id);
    route.latency += link.latency;
    if (link.connection_cap > 0)
      route.cap = route.cap > 0 ? std::min(route.cap, link.connection_cap) : link.connection_cap;
    node = link.to;
  }
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
    if (!(link.connection_cap >= 0))
      result.push_back(fmt::format("{}: connection cap {} B/s is negative", where, link.connection_cap));
  }
  std::size_t unreachable = 0;
  for (std::size_t to = 0; to < gpu_count(); ++to) {
    const std::vector<std::uint32_t> distance = graph_->distances(graph_->gpus[to]);
    for (std::size_t from = 0; from < gpu_count(); ++from) {
      if (distance[graph_->gpus[from]] != kFar) continue;
      if (++unreachable <= kPairsNamed)
        result.push_back(fmt::format("no way from {} to {}", nodes[graph_->gpus[from]].name,
                                     nodes[graph_->gpus[to]].name));
    }
  }
  if (unreachable > kPairsNamed)
    result.push_back(fmt::format("no way between {} more pairs of GPUs", unreachable - kPairsNamed));
  return result;
}

}  // namespace moesim::sim
