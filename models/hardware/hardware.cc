#include "models/hardware/hardware.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

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

constexpr std::size_t kBf16 = static_cast<std::size_t>(DType::kBf16);

constexpr std::array kNumbers{
    HardwareNumber{"nic.bandwidth", "network port", HardwareUnit::kBandwidth,
                   [](const Cluster& c) { return c.nic.bandwidth; },
                   [](Cluster& c, double factor) {
                     c.nic.bandwidth *= factor;
                     c.nic.per_connection_cap *= factor;
                     for (double& gpu : c.nic.gpu_bandwidth) gpu *= factor;
                   }},
    HardwareNumber{"nic.latency_factor", "network latency", HardwareUnit::kFactor,
                   [](const Cluster& c) { return c.nic.latency_factor; },
                   [](Cluster& c, double factor) {
                     c.nic.latency_factor *= factor;
                     c.nic.latency *= factor;
                     scale_latencies(c, "/network", factor);
                   }},
    HardwareNumber{"nvlink.bandwidth", "NVLink (xGMI)", HardwareUnit::kBandwidth,
                   [](const Cluster& c) { return c.nvlink.bandwidth; },
                   [](Cluster& c, double factor) { c.nvlink.bandwidth *= factor; }},
    HardwareNumber{"nvlink.latency_factor", "NVLink latency", HardwareUnit::kFactor,
                   [](const Cluster& c) { return c.nvlink.latency_factor; },
                   [](Cluster& c, double factor) {
                     c.nvlink.latency_factor *= factor;
                     c.nvlink.latency *= factor;
                     scale_latencies(c, "/scaleup", factor);
                   }},
    HardwareNumber{"gpu.flops", "matrix FLOP/s (bf16)", HardwareUnit::kFlops,
                   [](const Cluster& c) { return c.profile.device().peak_flops[kBf16]; },
                   [](Cluster& c, double factor) {
                     for (double& peak : c.profile.device().peak_flops) peak *= factor;
                   }},
    HardwareNumber{"gpu.hbm_bandwidth", "HBM", HardwareUnit::kBandwidth,
                   [](const Cluster& c) { return c.profile.device().hbm_bandwidth; },
                   [](Cluster& c, double factor) { c.profile.device().hbm_bandwidth *= factor; }},
    HardwareNumber{"gpu.kernel_launch", "kernel launch (host)", HardwareUnit::kSeconds,
                   [](const Cluster& c) { return c.profile.launch().kernel; },
                   [](Cluster& c, double factor) { c.profile.launch().kernel *= factor; }},
    HardwareNumber{"gpu.host_sync", "host synchronisation", HardwareUnit::kSeconds,
                   [](const Cluster& c) { return c.profile.launch().host_sync; },
                   [](Cluster& c, double factor) {
                     c.profile.launch().host_sync *= factor;
                     c.profile.launch().d2h_copy *= factor;
                   }},
};

}  // namespace

std::span<const HardwareNumber> hardware_numbers() { return kNumbers; }

const HardwareNumber* find_hardware_number(std::string_view path) {
  const auto found = std::find_if(kNumbers.begin(), kNumbers.end(),
                                  [&](const HardwareNumber& number) { return number.path == path; });
  return found == kNumbers.end() ? nullptr : &*found;
}

}  // namespace moesim::models
