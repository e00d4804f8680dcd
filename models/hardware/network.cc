#include "models/hardware/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "models/hardware/cluster.h"
#include "models/hardware/device_work.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/laws_file.h"

namespace moesim::models {

namespace {

constexpr std::string_view kSchema = "moesim.network/1";
constexpr std::string_view kScaleupShare = "scaleup_share";
// Share of NVLink that a dispatch kernel reaches where it was not measured alone on the GPU: the median of
// the measured kernels (docs/models.md).
constexpr double kUsualScaleupShare = 0.65, kUsualSigma = 0.15;

using Json = nlohmann::ordered_json;

NetworkProfile from_node(const JsonNode& node) {
  NetworkProfile network;
  JsonObject object(node);
  const JsonNode schema = object.at("schema");
  if (schema.string() != kSchema) schema.fail(schema.describe(), "'" + std::string(kSchema) + "'");
  network.name = object.at("name").string();
  const JsonNode kind = object.at("kind");
  network.kind = kind.string();
  const auto& kinds = NetworkProfile::kinds();
  if (std::find(kinds.begin(), kinds.end(), network.kind) == kinds.end())
    kind.fail(kind.describe(), "one of " + join(kinds, ", "));
  network.gpus_per_node = static_cast<int>(object.integer("gpus_per_node", 8, 1, 1024));
  const auto per_node = object.find("nics_per_node"), per_gpu = object.find("nics_per_gpu");
  if (per_node && per_gpu) per_gpu->fail("both nics_per_node and nics_per_gpu", "one of them");
  if (!per_node && !per_gpu) node.fail("a network without nics_per_node", "nics_per_node or nics_per_gpu");
  network.ports_per_node = per_node ? static_cast<int>(per_node->integer(1, 1024))
                                    : network.gpus_per_node * static_cast<int>(per_gpu->integer(1, 64));
  const JsonNode rate = object.at("line_rate");
  if (rate.is_string()) {
    try {
      network.line_rate = parse_bandwidth(rate.string());
    } catch (const InputError& error) {
      rate.fail(error.what());
    }
  } else {
    network.line_rate = rate.number(1e3, 1e15);
  }
  network.rails = object.boolean("rails", false);
  network.provenance = object.string("provenance", "");
  if (const auto gaps = object.find("gaps"))
    for (const JsonNode& gap : gaps->items()) network.gaps.push_back(gap.string());
  if (const auto laws = object.find("laws")) {
    if (!laws->is_object()) laws->fail(laws->describe(), "an object");
    for (const std::string& key : laws->keys()) {
      const JsonNode law = *laws->find(key);
      if (!key.ends_with(kNetworkLaw)) law.fail("the law " + in_quotes(key), "a key that ends in /network");
      network.laws[key] = read_law(law);
    }
  }
  object.finish();
  return network;
}

void add(ParameterSet& set, std::string_view name, double value, double sigma) {
  const std::size_t n = set.names.size();
  std::vector<double> covariance((n + 1) * (n + 1), 0);
  for (std::size_t i = 0; i < n && !set.covariance.empty(); ++i)
    for (std::size_t j = 0; j < n; ++j) covariance[i * (n + 1) + j] = set.covariance[i * n + j];
  covariance.back() = sigma * sigma;
  set.covariance = std::move(covariance);
  set.names.emplace_back(name);
  set.values.push_back(value);
}

// Borrows the kernels of HybridEP, and of DeepEP's twins on AMD's GPUs (exchange_laws.json), inside a domain that were
// measured only on a relative. On other links a kernel reaches about the same share.
void borrow_kernels(Profile& profile) {
  const GpuFamily* family = gpu_family(profile.name());
  if (family == nullptr || family->kernels == GpuFamily::Kernels::kNone) return;
  const Profile other = Profile::load(family->relative);
  for (const auto& [key, set] : other.sets()) {
    if (!key.starts_with("ep/hybridep_") && !key.starts_with("ep/mori_ep_") &&
        !(family->amd() && key.starts_with("ep/uccl_ep_")))
      continue;
    if (key.ends_with(kNetworkLaw) || profile.find(key)) continue;
    ParameterSet copy = set;
    if (family->kernels == GpuFamily::Kernels::kDerived) {
      copy.derived = true;
      copy.of_kin = !set.derived;
      copy.rows = 0;
      copy.residual = std::hypot(copy.residual, kUsualSigma);
      copy.source = fmt::format("derived from {}: {}", family->relative, set.source);
    }
    profile.set(key, std::move(copy));
  }
}

bool is_network_law(const std::string& key) {
  return key.ends_with(kNetworkLaw) || key.find("/network@") != std::string::npos;
}

}  // namespace

ParameterSet with_links(ParameterSet set, const Profile& profile, const std::string& key) {
  const ParameterSet* inside = profile.find(key.substr(0, key.size() - kNetworkLaw.size()));
  const double own = inside != nullptr ? inside->get(kScaleupShare, 0) : 0;
  // The network's law has its own dependence on SMs: with the libraries' usual number both agree.
  const double slower = 1 + set.get("sm_half", 0) / kUsualSms,
               slower_inside = 1 + (inside != nullptr ? inside->get("sm_half", 0) : 0) / kUsualSms;
  add(set, kScaleupShare, (own > 0 ? own : kUsualScaleupShare) * slower / slower_inside,
      inside != nullptr && own > 0 ? inside->residual : kUsualSigma);
  return set;
}

NetworkProfile NetworkProfile::load(const std::string& name_or_path) {
  if (const auto* built_in =
          parsed_once<NetworkProfile>(embedded_networks(), name_or_path, "built-in network"))
    return *built_in;
  if (path_exists(name_or_path)) return from_node(JsonNode::read(name_or_path));
  throw InputError("found the network " + in_quotes(name_or_path) + ", expected a file or one of " +
                   join(names(), ", ") + did_you_mean(name_or_path, names()));
}

NetworkProfile NetworkProfile::parse(std::string_view json, const std::string& file) {
  return from_node(JsonNode::parse(json, file));
}

const std::vector<std::string>& NetworkProfile::names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const EmbeddedProfile& network : embedded_networks()) result.emplace_back(network.name);
    std::sort(result.begin(), result.end());
    return result;
  }();
  return names;
}

const std::vector<std::string>& NetworkProfile::kinds() {
  static const std::vector<std::string> kinds{"infiniband", "roce",        "efa", "tcpx",
                                              "slingshot",  "nvlink-rack", "any"};
  return kinds;
}

std::string NetworkProfile::to_json() const {
  Json out;
  out["schema"] = kSchema;
  out["name"] = name;
  out["kind"] = kind;
  out["gpus_per_node"] = gpus_per_node;
  out["nics_per_node"] = ports_per_node;
  out["line_rate"] = line_rate;
  out["rails"] = rails;
  out["provenance"] = provenance;
  out["gaps"] = gaps;
  Json written = Json::object();
  for (const auto& [key, set] : laws) written[key] = write_law(set);
  out["laws"] = std::move(written);
  return json_text(out, 1);
}

bool has_network_laws(const Profile& profile) {
  return std::any_of(profile.sets().begin(), profile.sets().end(), [](const auto& entry) {
    return entry.first.starts_with("collective/") && is_network_law(entry.first);
  });
}

void use_network(Cluster& cluster, const NetworkProfile& network) {
  Profile& profile = cluster.profile;
  std::vector<std::string> old;
  for (const auto& [key, set] : profile.sets())
    if (is_network_law(key)) old.push_back(key);
  for (const std::string& key : old) profile.erase(key);
  borrow_kernels(profile);
  const auto take = [&](const std::string& key, const ParameterSet& law) {
    profile.set(key, key.starts_with("ep/") ? with_links(law, profile, key) : law);
  };
  cluster.network = network.name;
  const bool measured = network.name != kLineRate;
  if (measured)
    for (const auto& [key, law] : network.laws) take(key, law);
  static const NetworkProfile all = NetworkProfile::load(std::string(kLineRate));
  for (const auto& [key, law] : (measured ? all : network).laws) {
    if (measured && network.laws.contains(key)) continue;
    ParameterSet guess = law;
    guess.derived = true;
    guess.rows = 0;
    guess.source = "derived from all measured networks by line rate";
    take(key, guess);
  }
}

bool has_slower_kin(const std::string& network, const std::string& law) {
  static const std::vector<NetworkProfile> all = [] {
    std::vector<NetworkProfile> read;
    for (const std::string& name : NetworkProfile::names()) read.push_back(NetworkProfile::load(name));
    return read;
  }();
  const auto own = std::ranges::find(all, network, &NetworkProfile::name);
  std::optional<NetworkProfile> file;
  if (own == all.end()) file = NetworkProfile::load(network);
  const NetworkProfile& asked = file ? *file : *own;
  const auto rate = [](const NetworkProfile& one) {
    return one.line_rate * one.ports_per_node / one.gpus_per_node;
  };
  return std::ranges::any_of(all, [&](const NetworkProfile& other) {
    return other.kind == asked.kind && rate(other) <= rate(asked) && other.laws.contains(law);
  });
}

std::string network_note(const Cluster& cluster) {
  if (cluster.network.empty() || cluster.ranks() <= cluster.nvlink.domain) return "";
  for (const auto& [key, set] : cluster.profile.sets())
    if (key.starts_with("collective/") && is_network_law(key) && !set.derived) return "";
  return "network " + cluster.network +
         ": no collective was measured on it; it is priced from its line rate, and the intervals are as "
         "wide "
         "as measured networks differ";
}

}  // namespace moesim::models
