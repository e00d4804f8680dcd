#include "models/workload/training_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {

namespace {

struct RecomputeName {
  std::string_view name;
  bool StepRecompute::*flag;
};
constexpr std::array<RecomputeName, 10> kRecompute{{{"full", &StepRecompute::full},
                                                    {"core_attn", &StepRecompute::attention},
                                                    {"mla_up_proj", &StepRecompute::latent},
                                                    {"layernorm", &StepRecompute::norms},
                                                    {"moe_act", &StepRecompute::activation},
                                                    {"moe", &StepRecompute::moe},
                                                    {"mlp", &StepRecompute::dense},
                                                    {"shared_experts", &StepRecompute::shared},
                                                    {"mhc", &StepRecompute::streams},
                                                    {"op", &StepRecompute::operations}}};

}  // namespace

std::size_t index_named(std::string_view what, std::string_view name,
                        std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::vector<std::string> known(names.begin(), names.end());
  throw InputError(fmt::format("{}: found {}, expected one of {}{}", what, in_quotes(name), join(known, ", "),
                               did_you_mean(name, known)));
}

std::string StepRecompute::text() const {
  std::string all;
  for (const RecomputeName& r : kRecompute)
    if (this->*r.flag) all += (all.empty() ? "" : "+") + std::string(r.name);
  return all.empty() ? "none" : all;
}

StepRecompute StepRecompute::parse(std::string_view text) {
  StepRecompute result;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find_first_of("+, \t", from), text.size());
    std::string_view name = text.substr(from, end - from);
    from = end + 1;
    if (name.empty() || name == "none") continue;
    if (name == "selective") name = "core_attn";
    if (name == "activation" || name == "act") name = "moe_act";
    if (name == "norm") name = "layernorm";
    const auto found =
        std::find_if(kRecompute.begin(), kRecompute.end(), [&](const auto& r) { return r.name == name; });
    if (found == kRecompute.end()) {
      std::vector<std::string> known{"none", "selective"};
      for (const RecomputeName& r : kRecompute) known.emplace_back(r.name);
      throw InputError(fmt::format("recompute: found {}, expected {}{}", in_quotes(name), join(known, ", "),
                                   did_you_mean(name, known)));
    }
    result.*found->flag = true;
  }
  StepRecompute alone;
  alone.operations = true;
  if (result.operations && result != alone)
    throw InputError(
        fmt::format("recompute: found {}, expected op alone or parts without it", in_quotes(text)));
  return result;
}

ShardingSpec ShardingSpec::parse(const std::string& text) {
  ShardingSpec spec;
  const std::vector<std::string_view> parts = split(text, ':');
  std::string name(trim(parts.front()));
  if (name == "distributed-optimizer") name = "zero1";
  const auto found = std::find(kNamesOf<ShardingScheme>.begin(), kNamesOf<ShardingScheme>.end(), name);
  if (found == kNamesOf<ShardingScheme>.end())
    throw InputError(
        fmt::format("sharding: found {}, expected ddp, zero1, zero2, fsdp or hsdp{}", in_quotes(name),
                    did_you_mean(name, std::vector<std::string>(kNamesOf<ShardingScheme>.begin(),
                                                                kNamesOf<ShardingScheme>.end()))));
  spec.scheme = static_cast<ShardingScheme>(found - kNamesOf<ShardingScheme>.begin());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string part(trim(parts[i]));
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "true" : part.substr(equals + 1);
    const auto flag = [&] {
      if (value != "true" && value != "false")
        throw InputError(
            fmt::format("sharding: {}: found {}, expected true or false", key, in_quotes(value)));
      return value == "true";
    };
    if (key == "shard") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), spec.shard);
      if (error != std::errc() || end != value.data() + value.size() || spec.shard < 1)
        throw InputError(fmt::format("sharding: shard: found {}, expected a number of ranks of at least 1",
                                     in_quotes(value)));
    } else if (key == "reshard") {
      spec.reshard = flag();
    } else if (key == "shampoo") {
      spec.shampoo = flag();
    } else if (key == "muon") {
      spec.muon = flag();
    } else {
      static const std::vector<std::string> kKeys{"shard", "reshard", "shampoo", "muon"};
      throw InputError(fmt::format("sharding: found option {}, expected shard, reshard, shampoo or muon{}",
                                   in_quotes(key), did_you_mean(key, kKeys)));
    }
  }
  if (spec.shard > 0 && spec.scheme != ShardingScheme::kHsdp)
    throw InputError(fmt::format("sharding: found shard with {}, expected it with hsdp", name));
  return spec;
}

StepOverlap StepOverlap::parse(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, bool StepOverlap::*>, 4> kParts{
      {{"expert-communication", &StepOverlap::expert_communication},
       {"delayed-wgrad", &StepOverlap::delayed_wgrad},
       {"gradients", &StepOverlap::gradients},
       {"parameters", &StepOverlap::parameters}}};
  StepOverlap chosen;
  chosen.gradients = chosen.parameters = false;
  for (const std::string_view name : split(text, '+')) {
    if (name == "none") continue;
    const auto found =
        std::find_if(kParts.begin(), kParts.end(), [&](const auto& part) { return part.first == name; });
    if (found == kParts.end()) {
      std::vector<std::string> known{"none"};
      for (const auto& [part, flag] : kParts) known.emplace_back(part);
      throw InputError(fmt::format("overlap: found {}, expected {}{}", in_quotes(name), join(known, ", "),
                                   did_you_mean(name, known)));
    }
    chosen.*found->second = true;
  }
  return chosen;
}

std::string OptimizerTypes::text() const {
  return fmt::format("{},{},{}", name_of(master), name_of(first), name_of(second));
}

OptimizerTypes OptimizerTypes::parse(std::string_view text) {
  OptimizerTypes types;
  const auto fail = [&] {
    return InputError(
        fmt::format("optimizer dtypes: found {}, expected three of fp32, bf16, fp16, fp8: master weights, "
                    "first and second "
                    "moment, such as fp32,bf16,bf16",
                    in_quotes(text)));
  };
  std::string_view rest = text;
  for (DType* type : {&types.master, &types.first, &types.second}) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    try {
      *type = dtype_named(trim(rest.substr(0, end)));
    } catch (const InputError&) {
      throw fail();
    }
    if (*type != DType::kFp32 && *type != DType::kBf16 && *type != DType::kFp16 && *type != DType::kFp8)
      throw fail();
    if (end == rest.size() && type != &types.second) throw fail();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!rest.empty()) throw fail();
  return types;
}

void TrainingSettings::set_precision(std::string_view name) {
  index_named("precision", name, kPrecisions);
  precision = name;
  note.clear();
  const bool fp4 = name == "nvfp4" || name == "mxfp4";
  gemm = fp4 ? DType::kFp4 : dtype_named(name);
  if (fp4) note = "FP4 products were never measured here: the law of FP8's at the peak rate of FP4 is taken";
}

void TrainingSettings::set_sharding(std::string_view text) {
  const ShardingSpec spec = ShardingSpec::parse(std::string(text));
  sharding = spec.scheme;
  shard_group = spec.shard;
  reshard_after_forward = spec.reshard;
  shampoo = spec.shampoo;
  muon = spec.muon;
}

}  // namespace moesim::models
