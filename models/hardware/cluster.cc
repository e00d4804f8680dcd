#include "models/hardware/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/hardware.h"
#include "models/hardware/network.h"

namespace moesim::models {
namespace {

constexpr int kMostNodes = 1 << 20;
constexpr double kMostBandwidth = 1e15;

// A node type of node_types.json.
struct NodeType {
  std::string prefix, profile;
  int gpus_per_node = 0, domain = 0, ports_per_node = 0;
  double port_bandwidth = 0;  // bytes/s
  std::string fabric;         // "": by the network's rails
  std::string network;
  std::vector<double> gpu_bandwidth;  // bytes/s across nodes by local GPU; empty: all equal
  std::string description;
};

NodeType read_node_type(const JsonNode& node) {
  NodeType type;
  JsonObject object(node);
  type.prefix = object.at("prefix").string();
  type.profile = object.at("profile").string();
  type.gpus_per_node = static_cast<int>(object.at("gpus_per_node").integer(1, 1024));
  type.domain = static_cast<int>(object.at("domain").integer(1, 1 << 20));
  type.ports_per_node = static_cast<int>(object.at("ports_per_node").integer(1, 1 << 16));
  type.port_bandwidth = object.at("port_bandwidth").number(1e3, kMostBandwidth);
  type.fabric = object.string("fabric", "");
  type.network = object.at("network").string();
  if (const auto list = object.find("gpu_bandwidth"))
    for (const JsonNode& item : list->items()) type.gpu_bandwidth.push_back(item.number(1e3, kMostBandwidth));
  type.description = object.at("about").string();
  object.string("source", "");
  object.finish();
  return type;
}

const std::vector<NodeType>& node_types() {
  static const std::vector<NodeType> all = [] {
    std::vector<NodeType> types;
    JsonObject object(JsonNode::parse(embedded_table("node_types"), "node_types.json"));
    object.string("about", "");
    for (const JsonNode& node : object.at("node_types").items()) types.push_back(read_node_type(node));
    object.finish();
    return types;
  }();
  return all;
}

constexpr const char* kRails = "rail-optimised";
constexpr const char* kNoRails = "fat-tree";

void fill_from_profile(Cluster& cluster) {
  const DeviceLimits& device = cluster.profile.device();
  if (cluster.nvlink.bandwidth <= 0) cluster.nvlink.bandwidth = device.scaleup_bandwidth;
  if (cluster.nic.ports_per_node <= 0) cluster.nic.ports_per_node = cluster.gpus_per_node;
  if (cluster.nic.bandwidth <= 0) cluster.nic.bandwidth = device.nic_bandwidth;
}

// Takes the network with its rails, unless a fabric of another kind is set.
void take_network(Cluster& cluster, const NetworkProfile& network) {
  if (cluster.fabric.empty() || cluster.fabric == kRails || cluster.fabric == kNoRails)
    cluster.fabric = network.rails ? kRails : kNoRails;
  use_network(cluster, network);
}

Cluster one_of_type(const NodeType& type) {
  Cluster cluster;
  cluster.profile = Profile::load(type.profile);
  cluster.gpus_per_node = type.gpus_per_node;
  cluster.nvlink.domain = type.domain;
  cluster.nic.ports_per_node = type.ports_per_node;
  cluster.nic.bandwidth = type.port_bandwidth;
  cluster.fabric = type.fabric;
  cluster.nic.gpu_bandwidth = type.gpu_bandwidth;
  fill_from_profile(cluster);
  take_network(cluster, NetworkProfile::load(type.network));
  return cluster;
}

Cluster of_type(const NodeType& type, std::string name, int nodes, Cluster::NodeCount count) {
  static std::mutex mutex;
  static std::map<const NodeType*, Cluster> made;
  const std::lock_guard lock(mutex);
  auto one = made.find(&type);
  if (one == made.end()) one = made.emplace(&type, one_of_type(type)).first;
  Cluster cluster = one->second;
  cluster.name = std::move(name);
  cluster.nodes = nodes;
  cluster.node_count = count;
  return cluster;
}

// Returns a node type's name without the "x" before its number of nodes: "dgx-h100", "mi300x".
std::string_view name_without_nodes(const NodeType& type) {
  std::string_view name = type.prefix;
  name.remove_suffix(1);
  if (name.ends_with('-')) name.remove_suffix(1);
  return name;
}

// Returns the node type of a word without a number of nodes: its name ("aws-p5en"), the part after its
// vendor's ("p5en"), its GPU's profile ("h100-sxm") or that one's first word ("h100"); among several the
// first in the table.
const NodeType* type_of_word(std::string_view word) {
  if (std::none_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); })) return nullptr;
  for (const NodeType& type : node_types())
    if (name_without_nodes(type) == word) return &type;
  for (const NodeType& type : node_types()) {
    const std::string_view name = name_without_nodes(type), profile = type.profile;
    const std::size_t dash = name.find('-');
    if ((dash != std::string_view::npos && name.substr(dash + 1) == word) || profile == word ||
        profile.substr(0, profile.find('-')) == word)
      return &type;
  }
  if (const GpuFamily* gpu = gpu_named(word))
    for (const NodeType& type : node_types())
      if (type.profile == gpu->profile) return &type;
  return nullptr;
}

// Returns "dgx-h100x8" for "dgx-h100" or "dgx-h100x4" with 8 nodes; leaves other names unchanged.
std::string name_with_nodes(const std::string& name, std::int64_t nodes) {
  for (const NodeType& type : node_types()) {
    const std::string_view prefix = type.prefix;
    const bool counted = name.starts_with(prefix) && parse_int(std::string_view(name).substr(prefix.size()));
    if (counted || name == name_without_nodes(type)) return fmt::format("{}{}", prefix, nodes);
  }
  return name;
}

// A name with its number of nodes ("dgx-h100x4", "h100x4") or without ("dgx-h100", "h100").
std::optional<Cluster> built_in(std::string_view written) {
  const std::string text = lower(written);
  const std::string_view name = text;
  const std::size_t end = name.find_last_not_of("0123456789");
  if (end != std::string_view::npos && end + 1 < name.size() && name[end] == 'x') {
    std::string_view word = name.substr(0, end);
    if (word.ends_with('-')) word.remove_suffix(1);
    if (const NodeType* type = type_of_word(word)) {
      const auto nodes = parse_int(name.substr(end + 1));
      if (!nodes || *nodes < 1 || *nodes > kMostNodes)
        throw InputError("found the cluster " + in_quotes(name) + ", expected 1 to " +
                         std::to_string(kMostNodes) + " nodes");
      return of_type(*type, fmt::format("{}{}", type->prefix, *nodes), static_cast<int>(*nodes),
                     Cluster::NodeCount::kGiven);
    }
  }
  if (const NodeType* type = type_of_word(name))
    return of_type(*type, std::string(name_without_nodes(*type)), 1, Cluster::NodeCount::kOpen);
  return std::nullopt;
}

// "8xh100" counts GPUs where people write it: which of the two is meant has to be said.
std::string gpus_first_hint(std::string_view written) {
  const std::string text = lower(written);
  const std::string_view name = text;
  const std::size_t x = name.find('x');
  if (x == std::string_view::npos || !parse_int(name.substr(0, x)) || !type_of_word(name.substr(x + 1)))
    return "";
  const std::string_view count = name.substr(0, x), word = name.substr(x + 1);
  return fmt::format("; '{0}x{1}' is {1} nodes, '{0}' with --gpus {1} is {1} GPUs", word, count);
}

void read_nic(const JsonNode& node, Cluster& cluster) {
  JsonObject object(node);
  Nic& nic = cluster.nic;
  const auto per_node = object.find("ports_per_node");
  const auto per_gpu = object.find("ports_per_gpu");
  if (per_node && per_gpu) per_gpu->fail("both ports_per_node and ports_per_gpu", "one of them");
  if (per_node) nic.ports_per_node = static_cast<int>(per_node->integer(1, 1 << 16));
  if (per_gpu) nic.ports_per_node = cluster.gpus_per_node * static_cast<int>(per_gpu->integer(1, 64));
  read_hardware(object, "nic.", cluster);
  if (const auto list = object.find("gpu_bandwidth")) {
    nic.gpu_bandwidth.clear();
    for (const JsonNode& item : list->items())
      nic.gpu_bandwidth.push_back(read_quantity(item, HardwareUnit::kBandwidth, 1e3, kMostBandwidth));
    if (nic.gpu_bandwidth.size() != static_cast<std::size_t>(cluster.gpus_per_node))
      list->fail(std::to_string(nic.gpu_bandwidth.size()) + " numbers",
                 "one for each of the " + std::to_string(cluster.gpus_per_node) + " GPUs of a node");
  }
  object.finish();
}

// Chooses the network that a cluster names, else its base's, else the profile's own, else that of the node
// type with this GPU; without any, all measured networks pooled at its line rate.
void choose_network(JsonObject& object, Cluster& cluster, const std::string& of_base) {
  const auto given = object.find("network");
  if (given) {
    try {
      const NetworkProfile network = NetworkProfile::load(given->string());
      cluster.nic.ports_per_node =
          std::max(1, network.ports_per_node * cluster.gpus_per_node / network.gpus_per_node);
      cluster.nic.bandwidth = network.line_rate;
      cluster.nic.gpu_bandwidth.clear();
      take_network(cluster, network);
      cluster.network = given->string();  // as given, so that a path is found again
    } catch (const InputError& error) {
      if (error.place().file.empty()) given->fail(error.what());
      throw;
    }
    return;
  }
  if (of_base.empty() && has_network_laws(cluster.profile)) return;
  take_network(cluster, NetworkProfile::load(of_base.empty() ? usual_network(cluster.profile) : of_base));
}

// Returns a file beside the cluster's, if one with that name exists.
std::string fabric_path(const std::string& name, const std::string& cluster_file) {
  const std::filesystem::path beside = std::filesystem::path(cluster_file).parent_path() / name;
  return is_file(beside) ? beside.string() : name;
}

nlohmann::ordered_json whole_object(const Cluster& c) {
  using nlohmann::ordered_json;
  ordered_json nic{{"ports_per_node", c.nic.ports_per_node}};
  write_hardware(nic, "nic.", c);
  if (!c.nic.gpu_bandwidth.empty()) nic["gpu_bandwidth"] = c.nic.gpu_bandwidth;
  ordered_json nvlink{{"domain", c.nvlink.domain}};
  write_hardware(nvlink, "nvlink.", c);
  ordered_json gpu = ordered_json::object();
  write_hardware(gpu, "gpu.", c);
  ordered_json object{{"name", c.name}, {"profile", c.profile.source()}};
  if (c.node_count == Cluster::NodeCount::kGiven) object["nodes"] = c.nodes;
  object["gpus_per_node"] = c.gpus_per_node;
  object["nic"] = nic;
  object["nvlink"] = nvlink;
  object["gpu"] = gpu;
  if (c.fabric.starts_with('{'))
    object["fabric"] = ordered_json::parse(c.fabric);
  else if (!c.fabric.empty())
    object["fabric"] = c.fabric;
  if (!c.network.empty()) object["network"] = c.network;
  return object;
}

// Smaller nodes of a kind whose NVLink does not leave the node have smaller domains; a GPU keeps its ports.
void take_gpus_per_node(Cluster& cluster, int gpus) {
  if (gpus == cluster.gpus_per_node) return;
  int& domain = cluster.nvlink.domain;
  if (domain <= cluster.gpus_per_node) domain = std::min(domain, gpus);
  cluster.nic.ports_per_node = cluster.nic.ports_per_node * gpus / cluster.gpus_per_node;  // 0: one for each
  cluster.nic.gpu_bandwidth.clear();
  cluster.gpus_per_node = gpus;
}

// Reads the keys besides "base" in a cluster's object.
Cluster read_object(JsonObject& object, const JsonNode& node, const std::optional<Cluster>& base) {
  Cluster cluster;
  if (base) cluster = *base;
  const auto profile = object.find("profile");
  if (profile) {
    try {
      cluster.profile = Profile::load(profile->string());
    } catch (const InputError& error) {
      if (error.place().file.empty()) profile->fail(error.what());
      throw;
    }
    cluster.nvlink.bandwidth = 0;  // of the new GPU
    cluster.nic.latency_factor = cluster.nvlink.latency_factor = 1;
  } else if (!base) {
    node.fail("a cluster without 'profile'", "a profile or a 'base' cluster");
  }
  if (!base) cluster.nvlink.domain = cluster.profile.device().scaleup_domain;
  cluster.name = object.string("name", base ? cluster.name : node.path().empty() ? "cluster" : node.path());
  if (const auto nodes = object.find("nodes")) {
    cluster.nodes = static_cast<int>(nodes->integer(1, kMostNodes));
    cluster.node_count = Cluster::NodeCount::kGiven;
    if (base && !object.find("name")) cluster.name = name_with_nodes(cluster.name, cluster.nodes);
  } else if (!base) {
    cluster.node_count = Cluster::NodeCount::kOne;
  }
  if (!base) cluster.gpus_per_node = cluster.profile.device().gpus_per_node;
  take_gpus_per_node(cluster,
                     static_cast<int>(object.integer("gpus_per_node", cluster.gpus_per_node, 1, 1024)));
  if (!base || profile || object.find("network"))
    choose_network(object, cluster, base && !has_network_laws(cluster.profile) ? cluster.network : "");
  if (const auto nic = object.find("nic")) read_nic(*nic, cluster);
  if (const auto node = object.find("nvlink")) {
    JsonObject nvlink(*node);
    read_hardware(nvlink, "nvlink.", cluster);
    cluster.nvlink.domain = static_cast<int>(nvlink.integer("domain", cluster.nvlink.domain, 1, 1 << 20));
    nvlink.finish();
  }
  // Another GPU of the same kind: its limits, which the profile's laws are shares of.
  if (const auto node = object.find("gpu")) {
    JsonObject gpu(*node);
    read_hardware(gpu, "gpu.", cluster);
    gpu.finish();
  }
  const auto fabric = object.find("fabric"), rails = object.find("rails");
  if (fabric && rails) rails->fail("rails beside a fabric", "one of them: a fabric has its rails or not");
  if (rails) {
    cluster.fabric = rails->boolean() ? kRails : kNoRails;
  } else if (fabric) {
    const SourcePlace place = fabric->place();
    cluster.fabric =
        fabric->is_string() ? fabric_path(fabric->string(), place.file) : fabric->to_json().dump();
    cluster.fabric_place = place.str();
  }
  object.finish();
  fill_from_profile(cluster);
  return cluster;
}

}  // namespace

nlohmann::ordered_json Cluster::to_json() const {
  nlohmann::ordered_json object = whole_object(*this);
  const auto same_name = [&]() -> std::optional<Cluster> {
    try {
      return built_in(name);
    } catch (const InputError&) {  // an invalid number of nodes
      return std::nullopt;
    }
  }();
  if (same_name && whole_object(*same_name) == object) return name;
  return object;
}

Cluster Cluster::holding(std::int64_t gpus) const {
  const std::int64_t count = (gpus + gpus_per_node - 1) / gpus_per_node;
  if (count < 1 || count > kMostNodes)
    throw InputError(fmt::format("gpus: found {} for {}, expected what 1 to {} of its nodes hold", gpus, name,
                                 kMostNodes));
  Cluster held = *this;
  held.nodes = static_cast<int>(count);
  held.node_count = NodeCount::kGiven;
  held.name = name_with_nodes(name, count);
  return held;
}

std::string usual_network(const Profile& profile) {
  for (const NodeType& type : node_types())
    if (profile.name() == type.profile) return type.network;
  return std::string(kLineRate);
}

Cluster Cluster::load(const std::string& name_or_path) {
  if (name_or_path.starts_with('{')) return load(JsonNode::parse(name_or_path, "cluster"));
  if (auto cluster = built_in(name_or_path)) return *std::move(cluster);
  if (is_file(name_or_path)) return load(JsonNode::read(name_or_path));
  std::vector<std::string> known;
  for (const Pattern& pattern : patterns()) known.push_back(pattern.name);
  std::string hint = gpus_first_hint(name_or_path);
  if (hint.empty()) hint = did_you_mean(name_or_path, known);
  // Suggests a name with its N.
  for (const NodeType& type : node_types())
    if (name_or_path == type.prefix + "N")
      hint = fmt::format("; N is the number of nodes: '{}4', or '{}' with --gpus", type.prefix,
                         name_without_nodes(type));
  throw InputError("found the cluster " + in_quotes(name_or_path) + ", expected a file or one of " +
                   join(known, ", ") + hint);
}

Cluster Cluster::load(const JsonNode& node) {
  if (node.is_string()) {
    const std::string name = node.string();
    if (auto cluster = built_in(name)) return *std::move(cluster);
    try {
      return load(name);
    } catch (const InputError& error) {
      if (error.place().file.empty()) node.fail(error.what());
      throw;
    }
  }
  // A GPU's profile, as written by `calibrate refine`, stands for the usual machine with that GPU.
  if (const auto schema = node.is_object() ? node.find("schema") : std::nullopt;
      schema && schema->is_string() && schema->string().starts_with("moesim.profile/")) {
    Cluster cluster =
        load(JsonNode::from_json(nlohmann::json{{"profile", node.place().file}}, node.place().file));
    cluster.node_count = NodeCount::kOpen;
    return cluster;
  }
  JsonObject object(node);
  std::optional<Cluster> base;
  if (const auto named = object.find("base")) base = load(*named);
  return read_object(object, node, base);
}

Cluster Cluster::changed(const JsonNode& node) const {
  JsonObject object(node);
  return read_object(object, node, *this);
}

std::vector<Cluster::Pattern> Cluster::patterns() {
  std::vector<Pattern> result;
  for (const NodeType& type : node_types())
    result.push_back({type.prefix + "N", type.description, type.profile});
  return result;
}

}  // namespace moesim::models
