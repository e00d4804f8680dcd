// Facts from data sheets about the GPUs that profiles exist for, and about the machines that published rows
// come from.
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
  std::string_view profile;  // "h100-sxm"
  std::string_view gpu;      // as the published tables call it
  models::DeviceLimits limits;
  models::LaunchCosts launch;
  std::string_view relative;  // profile whose fit stands in where this GPU was not measured; "" = none
  std::string_view source;
  // FLOP/s of the best dense product that was found on it (maximum achievable matmul); 0: not known.
  double best_bf16 = 0, best_fp8 = 0;
  // Speed of grouped products in training beside dense ones, as a share of the same ratio on NVIDIA's GPUs.
  double grouped_share = 1;
};

std::span<const Device> devices();
const Device* find_device(std::string_view profile);

// The device that a row's GPU name means, also with a remark in parentheses or another memory size
// ("A100-SXM4-40GB", "H100-SXM5-80GB (p5, EFA 32x100G)"), or as drivers write it ("NVIDIA GeForce RTX 4090");
// nullptr for GPUs without a profile.
const Device* device_of_gpu(std::string_view gpu);

// The device that the last part of a path which begins with a device's short name and "_" is named after
// ("comm_bench/h800_2x8/x.csv", "rtx_4090_8x/x.csv"); nullptr where none is.
const Device* device_of_path(const std::filesystem::path& path);

// The network of a machine that published rows. `name` is "" for an unknown machine.
struct Machine {
  std::string_view name;
  std::string_view source_part;  // substring of the source column
  std::string_view gpu_part;
  int gpus_per_node;  // of a whole node, however many of them a row used
  int ports_per_node;
  double port_bandwidth;     // bytes/s
  std::string_view network;  // the network profile that its rows belong to
};

// The machine behind a row, by its source and GPU; nullptr when unknown.
const Machine* machine_of(std::string_view source, std::string_view gpu);
// A machine that is known by its network alone; `name` outlives it.
Machine machine_on(std::string_view name, const models::NetworkProfile& network);
// As by source and GPU, or a machine of the network that the row names.
const Machine* machine_of(const Origin& origin);

// A network of machines that published rows, or one that is only known by its ports.
struct NetworkFacts {
  std::string_view name, kind;
  int gpus_per_node, ports_per_node;
  double port_bandwidth;  // bytes/s
  bool rails;
  std::string_view gap;  // what is not known of it
};
std::span<const NetworkFacts> networks();

// A cluster of `nodes` such nodes for cost models; an unknown machine has the GPU's usual network. Laws of a
// network that the profile brings itself stand above those of the network's own profile.
models::Cluster cluster_of(const models::Profile& profile, const Machine* machine, int nodes,
                           int gpus_per_node);

}  // namespace moesim::calibration
