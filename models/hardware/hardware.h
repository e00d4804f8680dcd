// Numbers of a cluster that can be changed one by one: the network, the links inside a node, the GPU. One
// table reads them, writes them and lists them.
//
// The profile's laws are shares of data-sheet limits (of the peak FLOP/s, of the HBM bandwidth, of a port),
// so a faster part keeps the law with another limit. Times measured in seconds (latencies, launches) are
// multiplied directly.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
class JsonObject;
}  // namespace moesim

namespace moesim::models {

struct Cluster;

enum class HardwareUnit : std::uint8_t { kBandwidth, kSeconds, kFlops, kFactor, kBytes };

struct HardwareNumber {
  std::string_view path;  // as in a cluster file: "nic.bandwidth", "gpu.flops"
  std::string_view what;  // description for people
  HardwareUnit unit;
  double low, high;     // accepted in a cluster file
  bool varied = false;  // one of hardware_numbers()

  double value(const Cluster& cluster) const;  // SI units; for kFactor relative to the measured value
  // Multiplies the number by factor > 0, with everything measured on it.
  void scale(Cluster& cluster, double factor) const;
};

// Returns those that what-ifs vary, in display order.
std::span<const HardwareNumber> hardware_numbers();
// Returns nullptr for an unknown path.
const HardwareNumber* find_hardware_number(std::string_view path);

// Reads a plain number in SI units, or a string with its unit.
double read_quantity(const JsonNode& node, HardwareUnit unit, double low, double high);
// Read and write the numbers of an object of a cluster file, "nic.", "nvlink." or "gpu.".
void read_hardware(JsonObject& object, std::string_view part, Cluster& cluster);
void write_hardware(nlohmann::ordered_json& object, std::string_view part, const Cluster& cluster);

}  // namespace moesim::models
