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

  std::string profile;     // "h200-sxm"
  std::string generation;  // "hopper"
  std::string relative;    // profile whose laws stand in where this GPU was not measured; "": none
  Kernels kernels = Kernels::kNone;
  std::string next;  // profile of the vendor's next GPU; "": none
  // Whether kernels are ROCm's and the links in a node form a mesh.
  bool amd() const { return generation.starts_with("cdna"); }

  std::vector<std::string> also;  // other names of machines with this GPU ("GH200")
};

// Returns all families; within a generation the best known come first.
std::span<const GpuFamily> gpu_families();

// Returns nullptr for a GPU that is not in the table.
const GpuFamily* gpu_family(std::string_view profile);

}  // namespace moesim::models
