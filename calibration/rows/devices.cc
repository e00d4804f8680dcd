#include "calibration/rows/devices.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/network.h"

namespace moesim::calibration {
namespace {

using models::DType;

constexpr double kGB = 1e9, kGiB = 1024.0 * 1024 * 1024, kTF = 1e12, kUs = 1e-6;

// The content of devices.json.
struct Facts {
  std::vector<Device> devices;
  Device host;  // a machine without a GPU
  std::vector<NetworkFacts> networks;
  std::vector<Machine> machines;
};

// Returns the object of a list with this name; an empty one without it.
JsonObject named(const JsonNode& list, std::string_view name) {
  for (const JsonNode& one : list.items())
    if (one.find("name")->string() == name) return JsonObject(one);
  return JsonObject(JsonNode::parse("{}", "devices.json"));
}

Device read_device(const JsonNode& node, const JsonNode& hosts, const JsonNode& generations) {
  JsonObject sheet(node);
  Device d;
  d.profile = sheet.at("profile").string();
  d.gpu = sheet.at("name").string();
  d.source = sheet.at("source").string();
  const models::GpuFamily* family = models::gpu_family(d.profile);
  if (family) d.relative = family->relative;
  JsonObject generation = named(generations, family ? family->generation : "");
  const std::string host_name = sheet.string("host", "");
  JsonObject host = named(hosts, host_name);
  const auto number = [&](const char* key) { return sheet.at(key).number(); };
  models::DeviceLimits& l = d.limits;
  l.sms = static_cast<int>(sheet.at("sms").integer());
  l.memory_bytes = std::round(number("memory_gib") * kGiB / 1e6) * 1e6;
  l.l2_bytes = number("l2_mb") * 1e6;
  l.boost_clock = 1e9 * number("boost_ghz");
  l.hbm_bandwidth = number("hbm_gbps") * kGB;
  l.hbm_efficiency = number("hbm_measured_gbps") / number("hbm_gbps");
  const auto peak = [&](DType dtype, double tflops) {
    l.peak_flops[static_cast<std::size_t>(dtype)] = tflops * kTF;
  };
  const double bf16 = number("bf16"), fp8 = sheet.number("fp8", 0);
  peak(DType::kBf16, bf16);
  peak(DType::kFp16, bf16);
  peak(DType::kTf32, bf16 / 2);
  peak(DType::kFp8, fp8);
  peak(DType::kFp4, sheet.number("fp4", 0));
  peak(DType::kFp32, number("fp32"));
  peak(DType::kFp64, number("fp64"));
  if (const auto precisions = generation.find("precisions"))
    for (const JsonNode& one : precisions->items()) l.precisions.push_back(one.string());
  for (const DType scaled : {DType::kFp8Block, DType::kMxFp8})
    if (std::ranges::find(l.precisions, models::name_of(scaled)) != l.precisions.end()) peak(scaled, fp8);
  l.power_slowdown = sheet.number("power_slowdown", generation.number("power_slowdown", 1));
  l.exponentials_elsewhere = generation.number("exponentials_elsewhere", 0);
  // Sustained matrix rate over the short-burst one: 794 of 956 TFLOP/s on H100 (data set README, gemm_dense).
  l.sustained_clock = 0.83;
  d.best_bf16 = sheet.number("best_bf16", 0) * kTF;
  d.best_fp8 = sheet.number("best_fp8", 0) * kTF;
  d.grouped_share = sheet.number("grouped_share", 1);
  l.host_link = host.number("link", 0) * kGB;
  l.host_memory = host.number("memory", 0) * kGB;
  const auto link = sheet.find("link_gbps");
  l.scaleup_bandwidth = link ? link->number() * kGB : l.host_link;
  l.scaleup_domain = static_cast<int>(sheet.integer("domain", 8));
  l.gpus_per_node = static_cast<int>(sheet.integer("gpus_per_node", 8));
  l.nic_bandwidth = number("nic_gbps") * kGB;
  // A blocking copy of a few bytes costs about 15 us until the next kernel runs. Launch and copy are common
  // knowledge, not in the data set: the profiles list them in their gaps.
  if (!host_name.empty())
    d.launch = {host.number("launch_s", 4e-6), generation.number("kernel_floor_s", 2.5e-6), 15 * kUs,
                8 * kUs};
  sheet.finish();
  return d;
}

NetworkFacts read_network(const JsonNode& node) {
  JsonObject object(node);
  return {object.at("name").string(),
          object.at("kind").string(),
          static_cast<int>(object.at("gpus_per_node").integer()),
          static_cast<int>(object.at("ports_per_node").integer()),
          object.at("port_gbps").number() * kGB,
          object.boolean("rails", false),
          object.string("gap", "")};
}

Machine read_machine(const JsonNode& node, const std::vector<NetworkFacts>& networks) {
  JsonObject object(node);
  Machine machine{
      object.at("name").string(),   object.string("source", ""), object.string("gpu", ""), 0, 0, 0,
      object.at("network").string()};
  const auto network = std::ranges::find(networks, machine.network, &NetworkFacts::name);
  if (const auto gpus = object.find("gpus_per_node")) {
    machine.gpus_per_node = static_cast<int>(gpus->integer());
    machine.ports_per_node = static_cast<int>(object.at("ports_per_node").integer());
    machine.port_bandwidth = object.at("port_gbps").number() * kGB;
  } else {
    check(network != networks.end(), "ports of a machine or of its network");
    machine.gpus_per_node = network->gpus_per_node;
    machine.ports_per_node = network->ports_per_node;
    machine.port_bandwidth = network->port_bandwidth;
  }
  return machine;
}

const Facts& facts() {
  static const Facts all = [] {
    Facts read;
    JsonObject file(JsonNode::parse(models::embedded_table("devices"), "devices.json"));
    const JsonNode hosts = file.at("hosts"), generations = file.at("generations");
    for (const JsonNode& gpu : file.at("gpus").items())
      read.devices.push_back(read_device(gpu, hosts, generations));
    read.host = read_device(file.at("host"), hosts, generations);
    for (const JsonNode& network : file.at("networks").items())
      read.networks.push_back(read_network(network));
    for (const JsonNode& machine : file.at("machines").items())
      read.machines.push_back(read_machine(machine, read.networks));
    return read;
  }();
  return all;
}

// "H100" of "H100-SXM5-80GB".
std::string_view short_name(const Device& device) {
  return std::string_view(device.gpu).substr(0, device.gpu.find('-'));
}

std::string_view first_word(std::string_view name) { return name.substr(0, name.find_first_of("- ")); }

// "H100 80GB HBM3" of "NVIDIA H100 80GB HBM3", as drivers name GPUs.
std::string_view without_maker(std::string_view name) {
  for (const std::string_view maker : {"NVIDIA ", "AMD Instinct ", "AMD "})
    if (name.starts_with(maker)) return name.substr(maker.size());
  return name;
}

}  // namespace

std::span<const Device> devices() { return facts().devices; }

const Device* find_device(std::string_view profile) {
  if (profile == "host") return &facts().host;
  for (const Device& device : devices())
    if (device.profile == profile) return &device;
  return nullptr;
}

const Device* device_of_gpu(std::string_view gpu) {
  const std::string_view plain = gpu.substr(0, gpu.find(" ("));
  for (const Device& device : devices())
    if (device.gpu == plain || device.profile == plain) return &device;
  if (plain == "HOST" || plain == "host") return &facts().host;
  if (const models::GpuFamily* family = models::gpu_named(plain)) return find_device(family->profile);
  // Other memory sizes, forms and short names match up to the first dash or blank. Cards for a PCIe slot and
  // slices of a GPU are different: their short name is that of another GPU ("H100-PCIe-80GB").
  for (const std::string_view other : {"PCI", "NVL", "-or-", " or ", "MIG"})
    if (plain.find(other) != std::string_view::npos) return nullptr;
  const std::string_view family = first_word(without_maker(plain));
  for (const models::GpuFamily& known : models::gpu_families())
    if (std::ranges::find(known.also, family) != known.also.end()) return find_device(known.profile);
  for (const Device& device : devices())
    if (family == short_name(device) && !models::by_pcie(device.profile)) return &device;
  return nullptr;
}

const models::Profile& built_in(const Device& device) {
  static std::map<std::string_view, models::Profile> loaded;
  const auto [at, added] = loaded.try_emplace(device.profile);
  if (added) at->second = models::Profile::load(std::string(device.profile));
  return at->second;
}

const models::Profile* built_in_of(const std::string& gpu) {
  const Device* device = device_of_gpu(gpu);
  const auto& names = models::Profile::names();
  const bool has = device && std::find(names.begin(), names.end(), device->profile) != names.end();
  return has ? &built_in(*device) : nullptr;
}

std::string table_name(std::string_view driver_name) {
  const std::string_view plain = without_maker(trim(driver_name));
  const Device* device = device_of_gpu(plain);
  if (!device) return std::string(trim(driver_name));
  const bool exact = models::gpu_named(plain) != nullptr;
  // A machine with this GPU has rows of its own name ("GH200 480GB").
  if (!exact && first_word(plain) != short_name(*device)) return std::string(first_word(plain));
  // Another size of memory stays said ("A100-SXM4-40GB").
  const std::size_t size = plain.find("GB");
  if (!exact && size != std::string_view::npos && size > 0) {
    const std::size_t digits = plain.find_last_not_of("0123456789", size - 1) + 1;
    if (device->gpu.find(plain.substr(digits, size - digits)) == std::string_view::npos)
      return std::string(plain);
  }
  return device->gpu;
}

void use_table_names(Measurements& rows) {
  rows.each_list([](auto& list) {
    for (auto& row : list)
      if (without_maker(row.origin.gpu) != row.origin.gpu) row.origin.gpu = table_name(row.origin.gpu);
  });
}

void take_gpu(Measurements& rows, const std::string& said) {
  if (said.empty()) return;
  const Device* wanted = device_of_gpu(said);
  rows.each_list([&](auto& list) {
    for (auto& row : list) {
      const Device* own = device_of_gpu(row.origin.gpu);
      if (own && own != wanted)
        throw InputError(row.origin.place, "a row of " + in_quotes(row.origin.gpu),
                         in_quotes(said) + ", as --gpu says");
      if (!own) row.origin.gpu = said;
    }
  });
}

const Device* device_of_path(const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (const std::filesystem::path& part : path) names.push_back(lower(part.string()));
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    for (const bool cards : {true, false})
      for (const Device& device : devices()) {
        if (models::by_pcie(device.profile) != cards) continue;
        std::string folder(cards ? std::string_view(device.profile) : short_name(device));
        std::ranges::replace(folder, '-', '_');
        if (name->starts_with(lower(folder) + "_")) return &device;
      }
  return nullptr;
}

std::span<const NetworkFacts> networks() { return facts().networks; }

const Machine* machine_of(std::string_view source, std::string_view gpu) {
  for (const Machine& machine : facts().machines)
    if (source.find(machine.source_part) != std::string_view::npos &&
        gpu.find(machine.gpu_part) != std::string_view::npos)
      return &machine;
  return nullptr;
}

Machine machine_on(const std::string& name, const models::NetworkProfile& network) {
  return {name, "", "", network.gpus_per_node, network.ports_per_node, network.line_rate, name};
}

const Machine* machine_of(const Origin& origin) {
  static const std::map<std::string, Machine, std::less<>> machines = [] {
    std::map<std::string, Machine, std::less<>> result;
    for (const std::string& name : models::NetworkProfile::names())
      result[name] = machine_on(name, models::NetworkProfile::load(name));
    return result;
  }();
  const auto named = machines.find(origin.network);
  return named == machines.end() ? machine_of(origin.source, origin.gpu) : &named->second;
}

models::Cluster cluster_of(const models::Profile& profile, const Machine* machine, int nodes,
                           int gpus_per_node) {
  models::Cluster cluster;
  cluster.name = machine ? machine->name : profile.name();
  cluster.profile = profile;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node;
  cluster.nvlink.bandwidth = profile.device().scaleup_bandwidth;
  cluster.nvlink.domain = std::max(profile.device().scaleup_domain, gpus_per_node);
  if (profile.device().scaleup_domain <= profile.device().gpus_per_node)
    cluster.nvlink.domain = gpus_per_node;
  cluster.nic.ports_per_node = machine ? machine->ports_per_node : profile.device().gpus_per_node;
  cluster.nic.bandwidth = machine ? machine->port_bandwidth : profile.device().nic_bandwidth;
  models::use_network(
      cluster, models::NetworkProfile::load(machine ? machine->network : models::usual_network(profile)));
  for (const auto& [key, set] : profile.sets())
    if (key.ends_with(models::kNetworkLaw)) cluster.profile.set(key, set);
  return cluster;
}

}  // namespace moesim::calibration
