#include "models/hardware/gpu_family.h"

#include <algorithm>

#include "base/json_reader.h"
#include "models/hardware/embedded_profiles.h"

namespace moesim::models {

namespace {

GpuFamily read(const JsonNode& node) {
  GpuFamily gpu;
  JsonObject object(node);
  gpu.profile = object.at("profile").string();
  gpu.generation = object.at("generation").string();
  gpu.relative = object.string("relative", "");
  gpu.next = object.string("next", "");
  if (const auto kernels = object.find("kernels")) {
    if (kernels->string() != "same" && kernels->string() != "derived")
      kernels->fail(kernels->describe(), "'same' or 'derived'");
    gpu.kernels = kernels->string() == "same" ? GpuFamily::Kernels::kSame : GpuFamily::Kernels::kDerived;
  }
  if (const auto also = object.find("also"))
    for (const JsonNode& name : also->items()) gpu.also.push_back(name.string());
  object.finish();
  return gpu;
}

}  // namespace

std::span<const GpuFamily> gpu_families() {
  static const std::vector<GpuFamily> all = [] {
    std::vector<GpuFamily> gpus;
    JsonObject object(JsonNode::parse(embedded_table("gpu_families"), "gpu_families.json"));
    object.string("about", "");
    for (const JsonNode& node : object.at("gpus").items()) gpus.push_back(read(node));
    object.finish();
    return gpus;
  }();
  return all;
}

const GpuFamily* gpu_family(std::string_view profile) {
  const std::span<const GpuFamily> all = gpu_families();
  const auto found = std::ranges::find(all, profile, &GpuFamily::profile);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace moesim::models
