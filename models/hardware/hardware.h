// Hardware numbers of a cluster that can be changed one by one: the network, the links inside a node, the
// GPU.
//
// The profile's laws are shares of data-sheet limits (of the peak FLOP/s, of the HBM bandwidth, of a port),
// so a faster part keeps the law with another limit. Times measured in seconds (latencies, launches) are
// multiplied directly.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moesim::models {

struct Cluster;

enum class HardwareUnit : std::uint8_t { kBandwidth, kSeconds, kFlops, kFactor };

struct HardwareNumber {
  std::string_view path;  // as in a cluster file: "nic.bandwidth", "gpu.flops"
  std::string_view what;  // description for people
  HardwareUnit unit;
  double (*value)(const Cluster& cluster);  // SI units; for kFactor relative to the measured value
  // Multiplies the number by factor > 0, with everything measured on it.
  void (*scale)(Cluster& cluster, double factor);
};

// Returns all of them in display order.
std::span<const HardwareNumber> hardware_numbers();
// Returns nullptr for an unknown path.
const HardwareNumber* find_hardware_number(std::string_view path);

}  // namespace moesim::models
