#include "models/hardware/hardware.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/units.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

// Scales latencies of the collectives whose law ends in `scope` ("/network", "/scaleup"; also other machines'
// variants, "/network@..."), and the cost per message of a dispatch kernel across domains.
void scale_latencies(Cluster& cluster, std::string_view scope, double factor) {
  std::vector<std::pair<std::string, ParameterSet>> changed;
  for (const auto& [key, set] : cluster.profile.sets()) {
    const bool kernel = key.starts_with("ep/") && key.ends_with(scope);
    if (!kernel && (!key.starts_with("collective/") || key.find(scope) == std::string::npos)) continue;
    ParameterSet scaled = set;
    for (std::size_t i = 0; i < scaled.names.size(); ++i)
      if (scaled.names[i].starts_with("latency") || (kernel && scaled.names[i] == "per_token"))
        scaled.values[i] *= factor;
    changed.emplace_back(key, std::move(scaled));
  }
  for (auto& [key, set] : changed) cluster.profile.set(key, std::move(set));
}

constexpr double kMostBandwidth = 1e15;
constexpr std::size_t kBf16 = static_cast<std::size_t>(DType::kBf16);

// Calls `visit` with every number and where it stands in a cluster, in the order of a cluster file.
template <class C, class Visit>
void visit_numbers(C& c, const Visit& visit) {
  using enum HardwareUnit;
  auto& device = c.profile.device();
  auto& launch = c.profile.launch();
  visit({"nic.bandwidth", "network port", kBandwidth, 1e3, kMostBandwidth, true}, c.nic.bandwidth);
  visit({"nic.latency", "one way between nodes, where above the profile's", kSeconds, 0, 10}, c.nic.latency);
  visit({"nic.latency_factor", "network latency", kFactor, 1e-6, 1e6, true}, c.nic.latency_factor);
  visit({"nic.per_connection_cap", "", kBandwidth, 1e3, kMostBandwidth}, c.nic.per_connection_cap);
  visit({"nvlink.bandwidth", "NVLink (xGMI)", kBandwidth, 1e3, kMostBandwidth, true}, c.nvlink.bandwidth);
  visit({"nvlink.latency", "", kSeconds, 0, 10}, c.nvlink.latency);
  visit({"nvlink.latency_factor", "NVLink latency", kFactor, 1e-6, 1e6, true}, c.nvlink.latency_factor);
  visit({"gpu.flops", "matrix FLOP/s (bf16)", kFlops, 1e9, 1e18, true}, device.peak_flops[kBf16]);
  visit({"gpu.hbm_bandwidth", "HBM", kBandwidth, 1e6, kMostBandwidth, true}, device.hbm_bandwidth);
  visit({"gpu.kernel_launch", "kernel launch (host)", kSeconds, 1e-12, 1, true}, launch.kernel);
  visit({"gpu.host_sync", "host synchronisation", kSeconds, 1e-12, 1, true}, launch.host_sync);
  visit({"gpu.memory", "", kBytes, 1e6, 1e15}, device.memory_bytes);
}

// Returns all numbers, those that a sensitivity varies first.
const std::vector<HardwareNumber>& all_numbers() {
  static const std::vector<HardwareNumber> numbers = [] {
    std::vector<HardwareNumber> all;
    const Cluster none;
    visit_numbers(none, [&](const HardwareNumber& number, double) { all.push_back(number); });
    std::stable_partition(all.begin(), all.end(), [](const HardwareNumber& one) { return one.varied; });
    return all;
  }();
  return numbers;
}

}  // namespace

double HardwareNumber::value(const Cluster& cluster) const {
  double found = 0;
  visit_numbers(cluster, [&](const HardwareNumber& number, double at) {
    if (number.path == path) found = at;
  });
  return found;
}

void HardwareNumber::scale(Cluster& cluster, double factor) const {
  if (path == "nic.bandwidth") {
    cluster.nic.per_connection_cap *= factor;
    for (double& gpu : cluster.nic.gpu_bandwidth) gpu *= factor;
  } else if (path == "nic.latency_factor") {
    cluster.nic.latency *= factor;
    scale_latencies(cluster, "/network", factor);
  } else if (path == "nvlink.latency_factor") {
    cluster.nvlink.latency *= factor;
    scale_latencies(cluster, "/scaleup", factor);
  } else if (path == "gpu.flops") {
    auto& peaks = cluster.profile.device().peak_flops;
    for (std::size_t dtype = 0; dtype < peaks.size(); ++dtype)
      if (dtype != kBf16) peaks[dtype] *= factor;
  } else if (path == "gpu.host_sync") {
    cluster.profile.launch().d2h_copy *= factor;
  }
  visit_numbers(cluster, [&](const HardwareNumber& number, double& at) {
    if (number.path == path) at *= factor;
  });
}

std::span<const HardwareNumber> hardware_numbers() {
  const std::vector<HardwareNumber>& all = all_numbers();
  return std::span(all).first(static_cast<std::size_t>(std::ranges::count_if(all, &HardwareNumber::varied)));
}

const HardwareNumber* find_hardware_number(std::string_view path) {
  const auto found = std::ranges::find(all_numbers(), path, &HardwareNumber::path);
  return found == all_numbers().end() ? nullptr : &*found;
}

double read_quantity(const JsonNode& node, HardwareUnit unit, double low, double high) {
  if (!node.is_string() || unit == HardwareUnit::kFactor) return node.number(low, high);
  double value = 0;
  try {
    const std::string text = node.string();
    value = unit == HardwareUnit::kBandwidth ? parse_bandwidth(text)
            : unit == HardwareUnit::kSeconds ? parse_seconds(text)
            : unit == HardwareUnit::kFlops   ? parse_flops(text)
                                             : parse_bytes(text);
  } catch (const InputError& error) {
    node.fail(error.what());
  }
  if (!(value >= low && value <= high)) node.fail(node.describe(), "a value in its physical range");
  return value;
}

void read_hardware(JsonObject& object, std::string_view part, Cluster& cluster) {
  // A number with others measured on it comes before them.
  for (const bool varied : {true, false})
    visit_numbers(cluster, [&](const HardwareNumber& number, double& at) {
      if (!number.path.starts_with(part) || number.varied != varied) return;
      const std::string key(number.path.substr(part.size()));
      const auto value = object.find(key);
      if (!value) return;
      const double present = at;
      if (part == "gpu." && varied && present <= 0)
        value->fail("profile " + cluster.profile.name() + " has no " + key + " to change");
      const double asked = read_quantity(*value, number.unit, number.low, number.high);
      if (varied && present > 0) number.scale(cluster, asked / present);
      // To the last bit as it was asked for.
      if (number.unit != HardwareUnit::kFactor) at = asked;
    });
}

void write_hardware(nlohmann::ordered_json& object, std::string_view part, const Cluster& cluster) {
  visit_numbers(cluster, [&](const HardwareNumber& number, double value) {
    // Omits values that the profile lacks or that are left to it.
    if (number.path.starts_with(part) && value > 0 && value != (number.unit == HardwareUnit::kFactor ? 1 : 0))
      object[std::string(number.path.substr(part.size()))] = value;
  });
}

}  // namespace moesim::models
