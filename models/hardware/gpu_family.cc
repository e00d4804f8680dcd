#include "models/hardware/gpu_family.h"

#include <algorithm>
#include <cctype>

#include "base/json_reader.h"
#include "base/text.h"
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
  if (const auto links = object.find("links")) {
    if (links->string() != "pcie" && links->string() != "pcie-memory")
      links->fail(links->describe(), "'pcie' or 'pcie-memory'");
    gpu.links = links->string() == "pcie" ? GpuFamily::Links::kPcie : GpuFamily::Links::kPcieThroughMemory;
  }
  if (const auto names = object.find("names"))
    for (const JsonNode& name : names->items()) gpu.names.push_back(name.string());
  object.finish();
  return gpu;
}

// "nvidia-geforce-rtx-4090" of "NVIDIA GeForce RTX4090".
std::string dashed(std::string_view text) {
  std::string result;
  for (const char c : lower(std::string(text))) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && result.ends_with("rtx")) result += '-';
    const char written = c == ' ' || c == '_' ? '-' : c;
    if (written != '-' || !result.ends_with('-')) result += written;
  }
  return result;
}

// Words behind a name that make no other card of it: a size of the memory, or the edition that is meant.
bool harmless(std::string_view word) {
  const bool size = word.ends_with("gb") && parse_int(word.substr(0, word.size() - 2)).has_value();
  return size || word == "blackwell" || word == "server" || word == "edition";
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

bool by_pcie(std::string_view profile) {
  const GpuFamily* family = gpu_family(profile);
  return family && family->by_pcie();
}

const GpuFamily* gpu_named(std::string_view text) {
  const std::string whole = dashed(text);
  std::string_view name = whole;
  for (const std::string_view maker : {"nvidia-", "amd-", "geforce-", "instinct-"})
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  const auto means = [&](std::string_view called) {
    if (!name.starts_with(called)) return false;
    if (name.size() == called.size()) return true;
    return name[called.size()] == '-' &&
           std::ranges::all_of(split(name.substr(called.size() + 1), '-'), harmless);
  };
  for (const GpuFamily& gpu : gpu_families())
    if (means(gpu.profile) || std::ranges::any_of(gpu.names, means)) return &gpu;
  return nullptr;
}

}  // namespace moesim::models
