// The hardware numbers of a cluster that a buyer pays for, each of which can be changed alone: the network,
// the links inside a node, the GPU.
//
// The profile's laws are shares of data-sheet limits (a share of the peak FLOP/s, of the HBM bandwidth, of a
// port), so a faster part is the same law on another limit. What was measured in seconds (latencies,
// launches) is multiplied as it stands.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moesim::models {

struct Cluster;

enum class HardwareUnit : std::uint8_t { kBandwidth, kSeconds, kFlops, kFactor };

struct HardwareNumber {
  std::string_view path;  // as in a cluster file: "nic.bandwidth", "gpu.flops"
  std::string_view what;  // for people
  HardwareUnit unit;
  double (*value)(const Cluster& cluster);  // SI units; of kFactor: of what was measured
  // Multiplies it by factor > 0, with everything that was measured on it.
  void (*scale)(Cluster& cluster, double factor);
};

// All of them, in the order in which they are shown.
std::span<const HardwareNumber> hardware_numbers();
// nullptr for a path that is none.
const HardwareNumber* find_hardware_number(std::string_view path);

}  // namespace moesim::models
