#include "models/hardware/hardware.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "models/hardware/cluster.h"

namespace moesim::models {
namespace {

Cluster cluster() {
  Cluster c = Cluster::load(std::string("dgx-h100x4"));
  c.nic.latency = 2e-6;
  c.nic.per_connection_cap = 20e9;
  c.nic.gpu_bandwidth = {1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9};
  c.nvlink.latency = 5e-7;
  return c;
}

TEST(HardwareNumbers, AreFoundByPathAndScaleWhatTheyShow) {
  std::set<std::string_view> paths;
  for (const HardwareNumber& number : hardware_numbers()) {
    EXPECT_TRUE(paths.insert(number.path).second) << number.path;
    EXPECT_EQ(find_hardware_number(number.path), &number);
    Cluster c = cluster();
    const double before = number.value(c);
    EXPECT_GT(before, 0) << number.path;
    number.scale(c, 1.5);
    EXPECT_DOUBLE_EQ(number.value(c), 1.5 * before) << number.path;
  }
  EXPECT_EQ(find_hardware_number("gpu"), nullptr);
}

// Each can be changed alone: no other number moves, nor a law that is not its own.
TEST(HardwareNumbers, LeaveEachOtherAlone) {
  for (const HardwareNumber& changed : hardware_numbers()) {
    Cluster c = cluster();
    changed.scale(c, 2);
    const Cluster before = cluster();
    for (const HardwareNumber& other : hardware_numbers()) {
      if (&other == &changed) continue;
      EXPECT_EQ(other.value(c), other.value(before)) << changed.path << " " << other.path;
    }
    for (const auto& [key, set] : c.profile.sets()) {
      const bool latencies = changed.path == "nic.latency_factor" ? key.find("/network") != std::string::npos
                             : changed.path == "nvlink.latency_factor"
                                 ? key.find("/scaleup") != std::string::npos
                                 : false;
      if (latencies) continue;
      EXPECT_EQ(set.values, before.profile.at(key).values) << changed.path << " " << key;
    }
  }
}

TEST(HardwareNumbers, APortTakesItsConnectionsAndGpusAlong) {
  Cluster c = cluster();
  find_hardware_number("nic.bandwidth")->scale(c, 2);
  EXPECT_EQ(c.nic.per_connection_cap, 40e9);
  EXPECT_EQ(c.nic.gpu_bandwidth[7], 16e9);
  EXPECT_EQ(c.nic.latency, 2e-6);
}

TEST(HardwareNumbers, LatencyFactorsScaleLatenciesOnly) {
  Cluster c = cluster();
  find_hardware_number("nic.latency_factor")->scale(c, 3);
  EXPECT_DOUBLE_EQ(c.nic.latency, 6e-6);
  EXPECT_EQ(c.nvlink.latency, 5e-7);
  const Cluster untouched = cluster();
  const ParameterSet &before = untouched.profile.at("collective/all_gather/network"),
                     &after = c.profile.at("collective/all_gather/network");
  int latencies = 0;
  for (std::size_t i = 0; i < after.names.size(); ++i) {
    const bool latency = after.names[i].starts_with("latency");
    latencies += latency;
    EXPECT_DOUBLE_EQ(after.values[i], (latency ? 3 : 1) * before.values[i]) << after.names[i];
  }
  EXPECT_GT(latencies, 0);
}

}  // namespace
}  // namespace moesim::models
