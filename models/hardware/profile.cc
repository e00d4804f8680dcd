#include "models/hardware/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/random.h"
#include "base/text.h"
#include "models/hardware/device_work.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/laws_file.h"

namespace moesim::models {
namespace {

constexpr std::string_view kSchema = "moesim.profile/1";
constexpr double kHuge = 1e30;

using Json = nlohmann::ordered_json;

// A number of the file and where it lives, so that reading, writing and drawing name each key once.
struct Field {
  const char* key;
  double* value;
  double low;
  double high;
};

std::vector<Field> device_fields(DeviceLimits& d) {
  return {{"memory_bytes", &d.memory_bytes, 0, kHuge},
          {"l2_bytes", &d.l2_bytes, 0, kHuge},
          {"hbm_bandwidth", &d.hbm_bandwidth, 0, kHuge},
          {"hbm_efficiency", &d.hbm_efficiency, 0.01, 1},
          {"sustained_clock", &d.sustained_clock, 0.01, 1},
          {"boost_clock", &d.boost_clock, 0, 1e11},
          {"power_slowdown", &d.power_slowdown, 1, 10},
          {"exponentials_elsewhere", &d.exponentials_elsewhere, 0, 0.9},
          {"scaleup_bandwidth", &d.scaleup_bandwidth, 0, kHuge},
          {"nic_bandwidth", &d.nic_bandwidth, 0, kHuge},
          {"host_link", &d.host_link, 0, kHuge},
          {"host_memory", &d.host_memory, 0, kHuge}};
}

std::vector<Field> launch_fields(LaunchCosts& l) {
  return {{"kernel", &l.kernel, 0, 1},
          {"kernel_floor", &l.kernel_floor, 0, 1},
          {"host_sync", &l.host_sync, 0, 1},
          {"d2h_copy", &l.d2h_copy, 0, 1}};
}

std::vector<Field> overlap_fields(OverlapFactors& o) {
  return {{"compute_under_communication", &o.compute_under_communication, 1, 100},
          {"communication_under_compute", &o.communication_under_compute, 1, 100}};
}

void read_fields(JsonObject& object, const std::vector<Field>& fields) {
  for (const Field& field : fields)
    *field.value = object.number(field.key, *field.value, field.low, field.high);
}

DeviceLimits read_device(const JsonNode& node) {
  DeviceLimits device;
  JsonObject object(node);
  device.sms = static_cast<int>(object.at("sms").integer(1, 100000));
  read_fields(object, device_fields(device));
  device.scaleup_domain =
      static_cast<int>(object.integer("scaleup_domain", device.scaleup_domain, 1, 1 << 20));
  device.gpus_per_node = static_cast<int>(object.integer("gpus_per_node", device.gpus_per_node, 1, 1024));
  if (const auto peaks = object.find("peak_flops")) {
    for (const std::string& key : peaks->keys()) {
      const JsonNode value = *peaks->find(key);
      DType dtype{};
      try {
        dtype = dtype_named(key);
      } catch (const InputError&) {
        value.fail("the element type " + in_quotes(key), "bf16, fp8, ...");
      }
      device.peak_flops[static_cast<std::size_t>(dtype)] = value.number(0, kHuge);
    }
  }
  if (const auto precisions = object.find("precisions"))
    for (const JsonNode& name : precisions->items()) {
      if (std::find(kPrecisions.begin(), kPrecisions.end(), name.string()) == kPrecisions.end())
        name.fail(name.describe(), fmt::format("one of {}", fmt::join(kPrecisions, ", ")));
      device.precisions.push_back(name.string());
    }
  object.finish();
  return device;
}

// Log standard deviation of attention's core: the formula comes from figures of H100; the one measurement
// against it, a chunk of DeepSeek-V3 on H800, was 14 % off (docs/validation.md).
constexpr double kAttentionSigma = 0.12;
// For launches and synchronisations: 11 to 18 us for a small kernel in one public log (docs/dispatchers.md).
constexpr double kHostSigma = 0.15;

// For a dispatch kernel that was not measured on a network, against an all-to-all of its rows: the same
// kernels on the same ports differ by a factor of 1.2 to 2.5 between measured networks (docs/models.md).
constexpr double kUnmeasuredExchangeSigma = 0.5;

constexpr std::uint64_t kJudgedStream = 0x6a75646765;

double drawn(double value, double log_sigma, Random& random) {
  return log_sigma > 0 ? value * std::exp(log_sigma * random.normal()) : value;
}

void draw_set(ParameterSet& set, Random& random) {
  const std::size_t n = set.values.size();
  std::vector<double> lower;
  if (!set.covariance.empty() && lower_factor(set.covariance, n, lower)) {
    std::vector<double> normal(n);
    for (double& z : normal) z = random.normal();
    for (std::size_t i = 0; i < n; ++i) {
      double shift = 0;
      for (std::size_t j = 0; j <= i; ++j) shift += lower[i * n + j] * normal[j];
      set.values[i] *= std::exp(shift);
    }
  }
  set.factor *= drawn(1, set.systematic, random);
}

}  // namespace

bool DeviceLimits::has_precision(std::string_view name) const {
  if (!precisions.empty()) return std::find(precisions.begin(), precisions.end(), name) != precisions.end();
  return peak_flops[static_cast<std::size_t>(dtype_named(name.ends_with("fp4") ? "fp4" : name))] > 0;
}

double ParameterSet::get(std::string_view name, double fallback) const {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return values[i];
  return fallback;
}

const DomainRange* ParameterSet::range(std::string_view quantity) const {
  for (const DomainRange& candidate : domain)
    if (candidate.quantity == quantity) return &candidate;
  return nullptr;
}

Profile Profile::load(const std::string& name_or_path) {
  if (const Profile* built_in = parsed_once<Profile>(embedded_profiles(), name_or_path, "built-in profile"))
    return *built_in;
  if (path_exists(name_or_path)) {
    Profile read = from_node(JsonNode::read(name_or_path));
    read.source_ = name_or_path;
    return read;
  }
  throw InputError("found the profile " + in_quotes(name_or_path) + ", expected a file or one of " +
                   join(names(), ", ") + did_you_mean(name_or_path, names()));
}

Profile Profile::parse(std::string_view json, const std::string& file) {
  return from_node(JsonNode::parse(json, file));
}

Profile Profile::from_node(const JsonNode& node) {
  Profile profile;
  JsonObject object(node);
  const JsonNode schema = object.at("schema");
  if (schema.string() != kSchema) schema.fail(schema.describe(), "'" + std::string(kSchema) + "'");
  profile.name_ = object.at("name").string();
  profile.gpu_ = object.at("gpu").string();
  profile.provenance_ = object.string("provenance", "");
  if (const auto gaps = object.find("gaps"))
    for (const JsonNode& gap : gaps->items()) profile.gaps_.push_back(gap.string());
  profile.device_ = read_device(object.at("device"));
  if (const auto launch = object.find("launch")) {
    JsonObject inner(*launch);
    read_fields(inner, launch_fields(profile.launch_));
    inner.finish();
  }
  if (const auto overlap = object.find("overlap")) {
    JsonObject inner(*overlap);
    read_fields(inner, overlap_fields(profile.overlap_));
    inner.finish();
  }
  if (const auto laws = object.find("laws")) {
    if (!laws->is_object()) laws->fail(laws->describe(), "an object");
    for (const std::string& key : laws->keys()) (*profile.sets_)[key] = read_law(*laws->find(key));
  }
  if (const auto constants = object.find("constants")) {
    if (!constants->is_object()) constants->fail(constants->describe(), "an object");
    for (const std::string& key : constants->keys()) {
      JsonObject inner(*constants->find(key));
      Constant constant;
      constant.value = inner.at("value").number(-kHuge, kHuge);
      constant.sigma = inner.number("sigma", 0, 0, kHuge);
      constant.unit = inner.string("unit", "");
      constant.source = inner.string("source", "");
      inner.finish();
      profile.constants_[key] = std::move(constant);
    }
  }
  object.finish();
  return profile;
}

const std::vector<std::string>& Profile::names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const EmbeddedProfile& profile : embedded_profiles()) result.emplace_back(profile.name);
    std::sort(result.begin(), result.end());
    return result;
  }();
  return names;
}

const ParameterSet* Profile::find(std::string_view key) const {
  const auto found = sets_->find(key);
  return found == sets_->end() ? nullptr : &found->second;
}

const ParameterSet& Profile::at(std::string_view key) const {
  if (const ParameterSet* set = find(key)) return *set;
  throw InputError("profile " + name_ + " has no measurement of " + std::string(key));
}

void Profile::set(const std::string& key, ParameterSet parameters) {
  own_sets()[key] = std::move(parameters);
}

Profile::Laws& Profile::own_sets() {
  if (sets_.use_count() > 1) sets_ = std::make_shared<Laws>(*sets_);
  return *sets_;
}

const Constant* Profile::find_constant(std::string_view name) const {
  const auto found = constants_.find(name);
  return found == constants_.end() ? nullptr : &found->second;
}

double Profile::constant(std::string_view name) const {
  if (const Constant* constant = find_constant(name)) return constant->value;
  throw InputError("profile " + name_ + " has no constant " + in_quotes(name));
}

double Profile::constant(std::string_view name, double fallback) const {
  const Constant* constant = find_constant(name);
  return constant ? constant->value : fallback;
}

void Profile::set_constant(const std::string& name, Constant constant) {
  constants_[name] = std::move(constant);
}

Profile Profile::draw(Random& random) const {
  Profile result = *this;
  // Estimated values are drawn from a separate stream, so that the other draws do not depend on them.
  Random apart = Random::for_item(Random(random).next(), kJudgedStream);
  for (auto& [key, set] : result.own_sets()) draw_set(set, random);
  for (auto& [key, constant] : result.constants_) {
    const double z = random.normal();
    if (constant.value > 0)
      constant.value *= std::exp(constant.sigma / constant.value * z);
    else
      constant.value += constant.sigma * z;
  }
  for (auto& [key, set] : result.own_sets()) {
    set.beyond = apart.normal();
    // The unexplained residual of another GPU's law may all lie in one direction here.
    if (set.derived) set.factor *= drawn(1, set.residual, apart);
  }
  for (std::size_t i = 0; i < kKernelClasses; ++i) {
    const std::string key = "kernel/" + std::string(name_of(static_cast<KernelClass>(i)));
    const double factor = drawn(1, kUnmeasuredKernelSigma, apart);
    if (find(key)) continue;
    ParameterSet judged;
    judged.law = "memory-bound";
    judged.factor = factor;
    result.set(key, std::move(judged));
  }
  const auto judge = [&](ExchangeLibrary library) {
    ParameterSet judged;
    judged.law = "ep-kernel";
    judged.factor = drawn(1, kUnmeasuredExchangeSigma, apart);
    result.set(unmeasured_kernel_key(library), std::move(judged));
  };
  judge(ExchangeLibrary::kDeepEp);
  judge(ExchangeLibrary::kHybridEp);
  const double attention = drawn(1, kAttentionSigma, apart);
  if (!find_constant("attention_forward_efficiency")) result.attention_factor_ = attention;
  const double host = drawn(1, kHostSigma, apart);
  for (double* seconds : {&result.launch_.kernel, &result.launch_.host_sync, &result.launch_.d2h_copy})
    *seconds *= host;
  // Later libraries draw last, so that the others' draws are unchanged.
  for (const ExchangeLibrary library : kExchangeLibraries)
    if (!result.find(unmeasured_kernel_key(library))) judge(library);
  return result;
}

std::string Profile::to_json() const {
  Profile copy = *this;  // the field lists point into a mutable object
  Json out;
  out["schema"] = kSchema;
  out["name"] = name_;
  out["gpu"] = gpu_;
  out["provenance"] = provenance_;
  out["gaps"] = gaps_;
  Json device;
  device["sms"] = device_.sms;
  for (const Field& field : device_fields(copy.device_)) device[field.key] = *field.value;
  device["scaleup_domain"] = device_.scaleup_domain;
  device["gpus_per_node"] = device_.gpus_per_node;
  Json peaks = Json::object();
  for (std::size_t i = 0; i < kDTypes; ++i)
    if (device_.peak_flops[i] > 0)
      peaks[std::string(models::name_of(static_cast<DType>(i)))] = device_.peak_flops[i];
  device["peak_flops"] = std::move(peaks);
  if (!device_.precisions.empty()) device["precisions"] = device_.precisions;
  out["device"] = std::move(device);
  for (const Field& field : launch_fields(copy.launch_)) out["launch"][field.key] = *field.value;
  for (const Field& field : overlap_fields(copy.overlap_)) out["overlap"][field.key] = *field.value;
  Json laws = Json::object();
  for (const auto& [key, set] : *sets_) laws[key] = write_law(set);
  out["laws"] = std::move(laws);
  Json constants = Json::object();
  for (const auto& [key, constant] : constants_)
    constants[key] = {{"value", constant.value},
                      {"sigma", constant.sigma},
                      {"unit", constant.unit},
                      {"source", constant.source}};
  out["constants"] = std::move(constants);
  return json_text(out, 1);
}

}  // namespace moesim::models
