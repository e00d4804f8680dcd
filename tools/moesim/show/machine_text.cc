#include "tools/moesim/show/machine_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/question/paths.h"
#include "models/workload/scenario.h"

namespace moesim::tools {

namespace {

// The built-in machine of a cluster's name; nullopt: it has a name of its own.
std::optional<models::Cluster> built_in(const models::Cluster& cluster) {
  try {
    return models::Cluster::load(cluster.name);
  } catch (const InputError&) {  // a name that a file gave
    return std::nullopt;
  }
}

// A value as people write it; empty where there is none.
std::string value_text(const models::ScenarioPath& path, const models::Scenario& s) {
  if (path.number) return models::shown(path, path.number(s));
  const nlohmann::ordered_json value = models::value_at(s, path);
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
}

// "nic.bandwidth 100.0 GB/s instead of 50.0 GB/s" for each number that is not the built-in machine's.
std::vector<std::string> overrides(const models::Scenario& s, const models::Cluster& usual) {
  constexpr std::string_view kTop = "cluster.";
  models::Scenario as_built_in = s;
  as_built_in.cluster = std::make_shared<const models::Cluster>(usual);
  std::vector<std::string> found;
  for (const models::ScenarioPath& path : models::scenario_paths()) {
    if (!path.path.starts_with(kTop)) continue;
    const std::string own = value_text(path, s), before = value_text(path, as_built_in);
    const std::string name = path.path.substr(kTop.size());
    if (own != before && name != "network")
      found.push_back(before.empty() ? fmt::format("{} {}", name, own)
                                     : fmt::format("{} {} instead of {}", name, own, before));
  }
  return found;
}

}  // namespace

std::string machine_text(const models::Scenario& s) {
  const models::Cluster& cluster = *s.cluster;
  const std::optional<models::Cluster> usual = built_in(cluster);
  std::vector<std::string> parts;
  if (!usual)
    parts.push_back(fmt::format("{} x {} {}", cluster.nodes, cluster.gpus_per_node, cluster.profile.name()));
  if (!cluster.network.empty() && cluster.ranks() > cluster.nvlink.domain)
    parts.push_back("network " + cluster.network +
                    (usual && usual->network != cluster.network ? " instead of " + usual->network : ""));
  if (usual)
    for (std::string& one : overrides(s, *usual)) parts.push_back(std::move(one));
  return parts.empty() ? cluster.name : fmt::format("{} ({})", cluster.name, join(parts, "; "));
}

std::string asked_text(const models::Scenario& s, std::span<const models::ScenarioPath> varied) {
  const auto varies = [&](std::string_view path) {
    return std::ranges::find(varied, path, &models::ScenarioPath::path) != varied.end();
  };
  std::string subject = varies("model") ? "" : s.model.name;
  if (s.cluster && !varies("cluster")) subject += (subject.empty() ? "" : " on ") + machine_text(s);
  const char* pass = s.is_step() ? (s.train ? "one training step" : "one forward pass")
                                 : (s.train ? "one MoE layer" : "forward pass of one MoE layer");
  return (subject.empty() ? "" : subject + ": ") + pass;
}

}  // namespace moesim::tools
