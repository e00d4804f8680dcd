// Data-sheet facts about the GPUs of the profiles, and about the machines behind published rows: what
// devices.json says.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "calibration/rows/measurements.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct Device {
  std::string profile;  // "h100-sxm"
  std::string gpu;      // name in published tables
  models::DeviceLimits limits;
  models::LaunchCosts launch;
  std::string relative;  // profile whose fit stands in where this GPU was not measured; "" = none
  std::string source;
  // FLOP/s of the best dense product found on it (maximum achievable matmul); 0: unknown.
  double best_bf16 = 0, best_fp8 = 0;
  // Speed of grouped over dense products in training, relative to the same ratio on NVIDIA's GPUs.
  double grouped_share = 1;
};

std::span<const Device> devices();
const Device* find_device(std::string_view profile);

// Returns the device of a GPU's name in tables or as its driver gives it ("NVIDIA H100 80GB HBM3"), ignoring
// remarks in parentheses and other memory sizes ("A100-SXM4-40GB", "H100-SXM5-80GB (p5, EFA 32x100G)");
// nullptr for GPUs without a profile.
const Device* device_of_gpu(std::string_view gpu);

// Returns a device's built-in profile, loaded once.
const models::Profile& built_in(const Device& device);
// Likewise by the GPU's name in rows; nullptr for a GPU without one.
const models::Profile* built_in_of(const std::string& gpu);

// Returns the name that tables have for a driver's name: "H100-SXM5-80GB" for "NVIDIA H100 80GB HBM3"; the
// name itself for GPUs without a profile.
std::string table_name(std::string_view driver_name);
// Gives rows of GPUs with a driver's name the tables' name.
void use_table_names(Measurements& rows);
// Gives rows of GPUs without a profile the name that the user said. Throws InputError with the place of a row
// of another GPU.
void take_gpu(Measurements& rows, const std::string& said);

// Returns the device named by the last part of a path that begins with a device's short name and "_"
// ("comm_bench/h800_2x8/x.csv"); nullptr without one.
const Device* device_of_path(const std::filesystem::path& path);

// The network of a machine with published rows. `name` is "" for an unknown machine.
struct Machine {
  std::string name;
  std::string source_part;  // substring of the source column
  std::string gpu_part;
  int gpus_per_node;  // of a whole node, however many a row used
  int ports_per_node;
  double port_bandwidth;  // bytes/s
  std::string network;    // network profile of its rows
};

// Returns the machine of a row, by its source and GPU; nullptr where unknown.
const Machine* machine_of(std::string_view source, std::string_view gpu);
// Returns a machine known by its network alone.
Machine machine_on(const std::string& name, const models::NetworkProfile& network);
// Likewise, or a machine of the network that the row names.
const Machine* machine_of(const Origin& origin);

// A network of machines with published rows, or one known only by its ports.
struct NetworkFacts {
  std::string name, kind;
  int gpus_per_node, ports_per_node;
  double port_bandwidth;  // bytes/s
  bool rails;
  std::string gap;  // missing knowledge about it
};
std::span<const NetworkFacts> networks();

// Returns a cluster of `nodes` such nodes for cost models; an unknown machine has the GPU's usual network.
// Network laws in the profile take precedence over those of the network's profile.
models::Cluster cluster_of(const models::Profile& profile, const Machine* machine, int nodes,
                           int gpus_per_node);

}  // namespace moesim::calibration
