// Relations between GPUs (models/hardware/gpu_families.json).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::models {

struct GpuFamily {
  // Use of dispatch kernels that were measured only on the relative.
  enum class Kernels : std::uint8_t { kNone, kSame, kDerived };
  // Links between the GPUs of a node: NVLink or xGMI; PCIe with peer-to-peer access; PCIe without it, so that
  // every copy passes the host's memory.
  enum class Links : std::uint8_t { kOwn, kPcie, kPcieThroughMemory };

  std::string profile;     // "h200-sxm"
  std::string generation;  // "hopper"
  std::string relative;    // profile whose laws stand in where this GPU was not measured; "": none
  Kernels kernels = Kernels::kNone;
  std::string next;  // profile of the vendor's next GPU; "": none
  // Whether kernels are ROCm's and the links in a node form a mesh.
  bool amd() const { return generation.starts_with("cdna"); }
  bool blackwell() const { return generation.starts_with("blackwell"); }

  std::vector<std::string> also;  // other names of machines with this GPU ("GH200")

  Links links = Links::kOwn;
  bool by_pcie() const { return links != Links::kOwn; }
  std::vector<std::string> names;  // other names of the GPU
};

// Returns all families; within a generation the best known come first.
std::span<const GpuFamily> gpu_families();

// Returns nullptr for a GPU that is not in the table.
const GpuFamily* gpu_family(std::string_view profile);

// Returns whether the GPUs of a node reach each other by PCIe; false for a GPU that is not in the table.
bool by_pcie(std::string_view profile);

// The GPU that a name means as people and drivers write it: "NVIDIA GeForce RTX 4090", "RTX4090",
// "AMD Instinct MI325X", "H100-PCIe-80GB". Words that name another card ("RTX 4090 D", "Laptop GPU",
// "Max-Q") leave none: nullptr.
const GpuFamily* gpu_named(std::string_view text);

}  // namespace moesim::models
