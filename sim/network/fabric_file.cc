#include "sim/network/fabric_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/graphml.hpp>
#include <boost/property_map/dynamic_property_map.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/network/fabric_presets.h"

namespace moesim::sim {

namespace {

constexpr std::int64_t kMostNodes = 1 << 20;
constexpr double kMostCables = 1 << 22;  // about 1.5 GB
constexpr double kMostBandwidth = 1e15;  // bytes per second
constexpr double kMostLatency = 1.0;     // seconds

// Reads a number in base units, or a string with a unit.
double quantity(const JsonNode& node, double (*parse)(std::string_view), double most) {
  double value = 0;
  if (node.is_string()) {
    try {
      value = parse(node.string());
    } catch (const InputError& error) {
      node.fail(error.what());
    }
  } else {
    value = node.number();
  }
  if (!(value >= 0 && value <= most)) node.fail(node.describe(), fmt::format("a number from 0 to {}", most));
  return value;
}

void read_bandwidth(JsonObject& object, std::string_view key, double& value) {
  if (const auto node = object.find(key)) value = quantity(*node, parse_bandwidth, kMostBandwidth);
}

void read_latency(JsonObject& object, std::string_view key, Time& value) {
  if (const auto node = object.find(key))
    value = Time::from_seconds(quantity(*node, parse_seconds, kMostLatency));
}

std::uint32_t count(JsonObject& object, std::string_view key, std::uint32_t fallback,
                    std::int64_t most = kMostNodes) {
  return static_cast<std::uint32_t>(object.integer(key, fallback, 1, most));
}

std::optional<NodeKind> kind_of(std::string_view text) {
  for (const NodeKind kind : {NodeKind::gpu, NodeKind::nvswitch, NodeKind::pcie, NodeKind::nic,
                              NodeKind::leaf, NodeKind::spine, NodeKind::core})
    if (text == name(kind)) return kind;
  return std::nullopt;
}

void read_multipath(JsonObject& object, Fabric& fabric) {
  const auto node = object.find("multipath");
  if (!node) return;
  const std::string value = node->string();
  if (value != "hash" && value != "destination") node->fail(in_quotes(value), "'hash' or 'destination'");
  fabric.set_multipath(value == "hash" ? Multipath::hash : Multipath::destination);
}

NodeShape read_node_shape(const std::optional<JsonNode>& node, NodeShape shape) {
  if (!node) return shape;
  JsonObject object(*node);
  shape.gpus = count(object, "gpus", shape.gpus, 4096);
  shape.nics = count(object, "nics", std::min(shape.nics, shape.gpus), shape.gpus);
  shape.mesh = object.boolean("mesh", shape.mesh);
  read_bandwidth(object, "nvlink_bandwidth", shape.nvlink_bandwidth);
  read_latency(object, "nvlink_latency", shape.nvlink_latency);
  read_bandwidth(object, "nic_bandwidth", shape.nic_bandwidth);
  read_latency(object, "nic_latency", shape.nic_latency);
  read_bandwidth(object, "connection_cap", shape.connection_cap);
  read_bandwidth(object, "pcie_bandwidth", shape.pcie_bandwidth);
  read_bandwidth(object, "staging_bandwidth", shape.staging_bandwidth);
  read_latency(object, "staging_latency", shape.staging_latency);
  if (const auto list = object.find("without_gpudirect")) {
    shape.without_gpudirect.clear();
    for (const JsonNode& gpu : list->items())
      shape.without_gpudirect.push_back(static_cast<std::uint32_t>(gpu.integer(0, shape.gpus - 1)));
  }
  object.finish();
  return shape;
}

Fabric read_preset(JsonObject& object, const FabricDefaults& defaults) {
  const JsonNode name_node = object.at("preset");
  const std::string preset = name_node.string();
  const auto afford = [&](double cables) {
    if (cables > kMostCables)
      name_node.fail(fmt::format("a network of {:.0f} cables", cables),
                     fmt::format("at most {:.0f}", kMostCables));
  };
  Fabric fabric;
  const NodeShape node = read_node_shape(object.find("node"), defaults.node);
  const auto most_nodes = std::max<std::int64_t>(1, kMostFabricGpus / node.gpus);
  if (preset == "single-node") {
    afford(single_node_cables(node));
    fabric = single_node(node);
  } else if (preset == "dragonfly") {
    const std::uint32_t nodes = count(object, "nodes", defaults.nodes, most_nodes);
    const std::uint32_t routers = count(object, "routers", 8, 4096);
    const std::uint32_t nodes_per_router = count(object, "nodes_per_router", 2);
    double local = 100e9, global = 100e9;
    read_bandwidth(object, "local_bandwidth", local);
    read_bandwidth(object, "global_bandwidth", global);
    afford(dragonfly_cables(nodes, node, routers, nodes_per_router));
    fabric = dragonfly(nodes, node, routers, nodes_per_router, local, global);
  } else if (preset == "rail-tree" || preset == "fat-tree" || preset == "pod-tree") {
    const std::uint32_t nodes = count(object, "nodes", defaults.nodes, most_nodes);
    TreeShape tree;
    tree.nodes_per_leaf = count(object, "nodes_per_leaf", tree.nodes_per_leaf);
    tree.spines = count(object, "spines", tree.spines, 4096);
    tree.oversubscription = object.number("oversubscription", tree.oversubscription, 0.01, 1000);
    read_latency(object, "switch_latency", tree.switch_latency);
    if (preset == "pod-tree") {
      const std::uint32_t leaves_per_pod = count(object, "leaves_per_pod", 4, 4096);
      afford(pod_tree_cables(nodes, node, tree, leaves_per_pod));
      fabric = pod_tree(nodes, node, tree, leaves_per_pod);
    } else {
      const std::uint32_t rails = preset == "rail-tree" ? node.nics : 1;
      afford(leaf_tree_cables(nodes, node, tree, rails));
      fabric = leaf_tree(nodes, node, tree, rails);
    }
  } else {
    const auto names = fabric_presets();
    name_node.fail(in_quotes(preset), fmt::format("one of {}{}", join({names.begin(), names.end()}, ", "),
                                                  did_you_mean(preset, names)));
  }
  read_multipath(object, fabric);
  object.finish();
  return fabric;
}

// Adds nodes by name; both kinds of files share the checks.
class OwnNetwork {
 public:
  // Returns an error, or nothing.
  std::string add_node(const std::string& id, std::string_view kind_name, std::int64_t domain,
                       bool forwards) {
    const auto kind = kind_of(kind_name);
    if (!kind)
      return fmt::format("{} is no kind of node (gpu, nvswitch, pcie, nic, leaf, spine, core)",
                         in_quotes(kind_name));
    if (domain < 0 || domain >= kMostNodes) return fmt::format("{} is no domain", domain);
    if (nodes_.contains(id)) return fmt::format("node {} is named twice", in_quotes(id));
    nodes_[id] = *kind == NodeKind::gpu ? fabric.add_gpu(id, static_cast<std::uint32_t>(domain), forwards)
                                        : fabric.add_node(*kind, id);
    return "";
  }

  std::string add_link(const std::string& from, const std::string& to, double bandwidth, double latency,
                       double cap, bool duplex) {
    for (const std::string& end : {from, to})
      if (!nodes_.contains(end)) return fmt::format("no node {}", in_quotes(end));
    if (from == to) return fmt::format("a link from {} to itself", in_quotes(from));
    if (!(bandwidth > 0 && bandwidth <= kMostBandwidth && latency >= 0 && latency <= kMostLatency &&
          cap >= 0))
      return "bandwidth, latency or cap out of range";
    const Time time = Time::from_seconds(latency);
    if (duplex)
      fabric.add_cable(nodes_[from], nodes_[to], bandwidth, time, cap);
    else
      fabric.add_link(nodes_[from], nodes_[to], bandwidth, time, cap);
    return "";
  }

  Fabric fabric;

 private:
  std::map<std::string, std::uint32_t> nodes_;
};

Fabric read_own(JsonObject& object) {
  OwnNetwork network;
  const auto require = [](const JsonNode& node, const std::string& problem) {
    if (!problem.empty()) node.fail(problem);
  };
  for (const JsonNode& node : object.at("nodes").items()) {
    JsonObject entry(node);
    const std::string id = entry.at("name").string(), kind = entry.at("kind").string();
    const std::int64_t domain = entry.integer("domain", 0, 0, kMostNodes);
    const bool forwards = entry.boolean("forwards", false);
    entry.finish();
    require(node, network.add_node(id, kind, domain, forwards));
  }
  for (const JsonNode& node : object.at("links").items()) {
    JsonObject entry(node);
    const std::string from = entry.at("from").string(), to = entry.at("to").string();
    double bandwidth = quantity(entry.at("bandwidth"), parse_bandwidth, kMostBandwidth), cap = 0;
    Time latency = Time::kZero;
    read_latency(entry, "latency", latency);
    read_bandwidth(entry, "cap", cap);
    const bool duplex = entry.boolean("duplex", true);
    entry.finish();
    require(node, network.add_link(from, to, bandwidth, latency.seconds(), cap, duplex));
  }
  read_multipath(object, network.fabric);
  object.finish();
  return std::move(network.fabric);
}

void refuse_problems(const Fabric& fabric, const SourcePlace& place) {
  const std::vector<std::string> problems = fabric.problems();
  if (problems.empty()) return;
  throw InputError(place, problems.size() == 1
                              ? problems.front()
                              : fmt::format("{} (and {} more)", problems.front(), problems.size() - 1));
}

struct GraphmlNode {
  std::string name, kind = "gpu";
  std::int64_t domain = 0;
  bool forwards = false;
};

struct GraphmlEdge {
  double bandwidth = 0, latency = 0, cap = 0;
};

// Counts levels, nodes and edges before the recursive parser, which keeps everything, sees the text. The
// parser refuses text that is not XML.
void check_graphml_size(std::string_view text, const std::string& file) {
  std::size_t at = 0, counted = 0;
  long line = 1;
  int depth = 0;
  std::int64_t nodes = 0, edges = 0;
  const auto skip = [&](std::string_view open, std::string_view close) {
    if (!text.substr(at).starts_with(open)) return false;
    at = text.find(close, at + open.size());
    return true;
  };
  const auto refuse = [&](std::string_view found, std::string_view expected) {
    line += std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                       text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw InputError(SourcePlace{file, line}, std::string(found), std::string(expected));
  };
  while ((at = text.find('<', at)) != std::string_view::npos) {
    if (skip("<!--", "-->") || skip("<![CDATA[", "]]>") || skip("<?", "?>") || skip("<!", ">")) {
      if (at == std::string_view::npos) return;
      continue;
    }
    const std::string_view tag = text.substr(at + 1);
    std::size_t end = 0;
    for (char quote = 0; end < tag.size() && (quote != 0 || tag[end] != '>'); ++end)
      if (quote != 0)
        quote = tag[end] == quote ? '\0' : quote;
      else if (tag[end] == '"' || tag[end] == '\'')
        quote = tag[end];
    if (end == tag.size()) return;
    if (tag.starts_with('/'))
      --depth;
    else if (end == 0 || tag[end - 1] != '/')
      ++depth;
    if (depth > kMostGraphmlDepth)
      refuse(fmt::format("XML nested deeper than {} levels", kMostGraphmlDepth), "less");
    if (tag.starts_with("node") && ++nodes > kMostNodes)
      refuse(fmt::format("more than {} nodes", kMostNodes), "fewer");
    if (tag.starts_with("edge") && static_cast<double>(++edges) > kMostCables)
      refuse(fmt::format("more than {:.0f} edges", kMostCables), "fewer");
    at += end + 1;
  }
}

template <class Direction>
Fabric read_graphml_as(const std::string& text, const std::string& file) {
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, Direction, GraphmlNode, GraphmlEdge>;
  Graph graph;
  boost::dynamic_properties properties;
  properties.property("name", boost::get(&GraphmlNode::name, graph));
  properties.property("kind", boost::get(&GraphmlNode::kind, graph));
  properties.property("domain", boost::get(&GraphmlNode::domain, graph));
  properties.property("forwards", boost::get(&GraphmlNode::forwards, graph));
  properties.property("bandwidth", boost::get(&GraphmlEdge::bandwidth, graph));
  properties.property("latency", boost::get(&GraphmlEdge::latency, graph));
  properties.property("cap", boost::get(&GraphmlEdge::cap, graph));
  std::istringstream stream(text);
  try {
    boost::read_graphml(stream, graph, properties);
  } catch (const std::exception& error) {
    throw InputError(SourcePlace{file}, fmt::format("not a GraphML fabric: {}", one_line(error.what())));
  }
  OwnNetwork network;
  const auto require = [&](const std::string& problem) {
    if (!problem.empty()) throw InputError(SourcePlace{file}, problem);
  };
  const auto id = [&](auto node) {
    return graph[node].name.empty() ? fmt::format("n{}", node) : graph[node].name;
  };
  for (const auto node : boost::make_iterator_range(boost::vertices(graph)))
    require(network.add_node(id(node), graph[node].kind, graph[node].domain, graph[node].forwards));
  for (const auto& edge : boost::make_iterator_range(boost::edges(graph)))
    require(network.add_link(id(boost::source(edge, graph)), id(boost::target(edge, graph)),
                             graph[edge].bandwidth, graph[edge].latency, graph[edge].cap,
                             std::is_same_v<Direction, boost::undirectedS>));
  return std::move(network.fabric);
}

}  // namespace

Fabric read_fabric(const JsonNode& node, const FabricDefaults& defaults) {
  JsonObject object(node);
  Fabric fabric = object.find("preset") ? read_preset(object, defaults) : read_own(object);
  refuse_problems(fabric, node.place());
  return fabric;
}

Fabric parse_graphml_fabric(std::string_view text, const std::string& file) {
  check_graphml_size(text, file);
  const bool directed = text.find("edgedefault=\"directed\"") != std::string::npos;
  Fabric fabric = directed ? read_graphml_as<boost::bidirectionalS>(std::string(text), file)
                           : read_graphml_as<boost::undirectedS>(std::string(text), file);
  refuse_problems(fabric, SourcePlace{file});
  return fabric;
}

Fabric read_fabric_file(const std::filesystem::path& path, const FabricDefaults& defaults) {
  if (path.extension() != ".graphml") return read_fabric(JsonNode::read(path), defaults);
  return parse_graphml_fabric(read_file(path, std::uint64_t{256} << 20), path.string());
}

}  // namespace moesim::sim
