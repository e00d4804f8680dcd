#include "models/workload/training_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, 4> kFrameworks{"megatron", "none", "megatron-recipe",
                                                      "megatron-stock"};
constexpr std::array<std::string_view, 5> kPrecisions{"bf16", "fp8", "fp8_block", "mxfp8", "nvfp4"};
// As PipelineKind; the last is an alias of 1f1b, which is interleaved where vpp > 1.
constexpr std::array<std::string_view, 4> kPipelines{"1f1b", "zero-bubble", "dualpipe", "interleaved"};
constexpr std::array<std::string_view, 5> kFsdpUnits{"auto", "module", "block", "root", "experts"};
constexpr std::array<std::string_view, 2> kRankOrders{"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"};
constexpr std::array<std::string_view, 4> kOffloads{"none", "optimizer", "activations",
                                                    "optimizer+activations"};
constexpr std::array<std::string_view, 3> kAttentions{"flash", "unfused", "unfused-dropout"};
constexpr std::array<std::string_view, 3> kLoraModules{"attention", "attention+ffn", "attention+ffn+experts"};
constexpr std::array<std::string_view, 3> kLaunches{"eager", "partial-graphs", "graphs"};
constexpr std::array<std::string_view, 3> kReports{"none", "sequential", "fused"};
constexpr std::array<std::string_view, 3> kRecorders{"deferred-clear", "direct-clear", "journal"};

std::size_t choose(std::string_view what, std::string_view name, std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::vector<std::string> known(names.begin(), names.end());
  throw InputError(fmt::format("{}: found {}, expected one of {}{}", what, in_quotes(name), join(known, ", "),
                               did_you_mean(name, known)));
}

}  // namespace

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

void TrainingSettings::set_framework(std::string_view name) {
  framework = static_cast<Framework>(choose("framework", name, kFrameworks));
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
  choose("precision", name, kPrecisions);
  precision = name;
  note.clear();
  if (name == "nvfp4") {
    gemm = DType::kMxFp8;
    note = "NVFP4 products were never measured here: MXFP8's are taken";
  } else {
    gemm = dtype_named(name);
  }
}

void TrainingSettings::set_pipeline(std::string_view name) {
  const std::size_t word = choose("schedule", name, kPipelines);
  pipeline = name == "interleaved" ? PipelineKind::k1F1B : static_cast<PipelineKind>(word);
}

void TrainingSettings::set_sharding(std::string_view text) {
  const ShardingSpec spec = ShardingSpec::parse(std::string(text));
  sharding = spec.scheme;
  shard_group = spec.shard;
  reshard_after_forward = spec.reshard;
  shampoo = spec.shampoo;
  muon = spec.muon;
}

void TrainingSettings::set_fsdp_unit(std::string_view name) {
  fsdp_unit = static_cast<FsdpUnit>(choose("fsdp unit", name, kFsdpUnits));
}

void TrainingSettings::set_offload(std::string_view name) {
  offload = static_cast<Offload>(choose("offload", name, kOffloads));
}

void TrainingSettings::set_attention(std::string_view name) {
  attention = static_cast<AttentionKernel>(choose("attention", name, kAttentions));
}

void TrainingSettings::set_lora_modules(std::string_view name) {
  lora.modules = static_cast<Lora::Modules>(choose("lora modules", name, kLoraModules));
}

void TrainingSettings::set_rank_order(std::string_view order) {
  stages_inside = choose("rank order", order, kRankOrders) == 1;
}

std::string_view TrainingSettings::rank_order() const { return kRankOrders[stages_inside ? 1 : 0]; }

void TrainingSettings::set_launch(std::string_view name) {
  launch = static_cast<LaunchMode>(choose("launch", name, kLaunches));
}

std::string_view name_of(FsdpUnit unit) { return kFsdpUnits[static_cast<std::size_t>(unit)]; }
std::string_view name_of(Offload offload) { return kOffloads[static_cast<std::size_t>(offload)]; }
std::span<const std::string_view> offload_names() { return kOffloads; }
std::string_view name_of(AttentionKernel kernel) { return kAttentions[static_cast<std::size_t>(kernel)]; }
std::span<const std::string_view> attention_names() { return kAttentions; }
std::string_view name_of(Lora::Modules modules) { return kLoraModules[static_cast<std::size_t>(modules)]; }
std::span<const std::string_view> lora_module_names() { return kLoraModules; }
std::span<const std::string_view> rank_orders() { return kRankOrders; }
std::span<const std::string_view> fsdp_unit_names() { return kFsdpUnits; }
void TrainingSettings::set_overload_report(std::string_view name) {
  overload.report = static_cast<OverloadLog::Report>(choose("overload report", name, kReports));
}

void TrainingSettings::set_overload_recorder(std::string_view name) {
  overload.recorder = static_cast<OverloadLog::Recorder>(choose("overload recorder", name, kRecorders));
}

std::string_view name_of(OverloadLog::Report report) { return kReports[static_cast<std::size_t>(report)]; }
std::string_view name_of(OverloadLog::Recorder recorder) {
  return kRecorders[static_cast<std::size_t>(recorder)];
}

std::string_view name_of(Framework framework) { return kFrameworks[static_cast<std::size_t>(framework)]; }
std::string_view name_of(PipelineKind kind) { return kPipelines[static_cast<std::size_t>(kind)]; }
std::string_view name_of(LaunchMode mode) { return kLaunches[static_cast<std::size_t>(mode)]; }

std::span<const std::string_view> framework_names() { return kFrameworks; }
std::span<const std::string_view> precision_names() { return kPrecisions; }
std::span<const std::string_view> pipeline_names() { return kPipelines; }
std::span<const std::string_view> launch_names() { return kLaunches; }
std::span<const std::string_view> overload_report_names() { return kReports; }
std::span<const std::string_view> overload_recorder_names() { return kRecorders; }

}  // namespace moesim::models
