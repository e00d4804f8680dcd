#include "models/workload/training_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, 3> kPipelines{"1f1b", "zero-bubble", "dualpipe"};
constexpr std::array<std::string_view, 4> kShardings{"ddp", "distributed-optimizer", "fsdp", "hsdp"};
constexpr std::array<std::string_view, 3> kLaunches{"eager", "partial-graphs", "graphs"};

template <std::size_t N>
std::size_t choose(std::string_view what, std::string_view name,
                   const std::array<std::string_view, N>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::vector<std::string> known(names.begin(), names.end());
  throw InputError(fmt::format("{}: found {}, expected one of {}{}", what, in_quotes(name), join(known, ", "),
                               did_you_mean(name, known)));
}

template <class Function>
void at_place(const JsonNode& node, Function&& function) {
  try {
    function(node.string());
  } catch (const InputError& error) {
    if (!error.place().file.empty()) throw;
    throw InputError(node.place(), error.what());
  }
}

}  // namespace

void TrainingPlan::set_precision(std::string_view name) {
  static const std::vector<std::string> kNames{"bf16", "fp8", "fp8_block", "mxfp8", "nvfp4"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end())
    throw InputError(fmt::format("precision: found {}, expected one of {}{}", in_quotes(name),
                                 join(kNames, ", "), did_you_mean(name, kNames)));
  precision = name;
  note.clear();
  if (name == "nvfp4") {
    gemm = DType::kMxFp8;
    note = "NVFP4 products were never measured here: MXFP8's are taken";
  } else {
    gemm = dtype_named(name);
  }
}

void TrainingPlan::set_pipeline(std::string_view name) {
  if (name == "interleaved") name = "1f1b";
  pipeline = static_cast<PipelineKind>(choose("schedule", name, kPipelines));
}

void TrainingPlan::set_sharding(std::string_view name) {
  if (name == "zero1") name = "distributed-optimizer";
  sharding = static_cast<ShardingScheme>(choose("sharding", name, kShardings));
}

void TrainingPlan::set_launch(std::string_view name) {
  launch = static_cast<LaunchMode>(choose("launch", name, kLaunches));
}

TrainingPlan TrainingPlan::parse(const JsonNode& node) {
  TrainingPlan plan;
  JsonObject o(node);
  const auto text = [&](const char* key, auto&& set) {
    if (const auto value = o.find(key)) at_place(*value, set);
  };
  text("precision", [&](const std::string& s) { plan.set_precision(s); });
  text("schedule", [&](const std::string& s) { plan.set_pipeline(s); });
  text("sharding", [&](const std::string& s) { plan.set_sharding(s); });
  text("launch", [&](const std::string& s) { plan.set_launch(s); });
  text("recompute", [&](const std::string& s) { plan.recompute = StepRecompute::parse(s); });
  plan.shard_group = o.integer("shard_group", 0, 0, std::int64_t{1} << 31);
  plan.reshard_after_forward = o.boolean("reshard_after_forward", plan.reshard_after_forward);
  plan.gradient_bytes = static_cast<int>(o.integer("gradient_bytes", plan.gradient_bytes, 2, 4));
  plan.fp8_attention = o.boolean("fp8_attention", plan.fp8_attention);
  plan.fused_kernels = o.boolean("fused_kernels", plan.fused_kernels);
  plan.unfolded = !o.boolean("folding", true);
  if (const auto overlap = o.find("overlap")) {
    JsonObject v(*overlap);
    plan.overlap.expert_communication = v.boolean("expert_communication", plan.overlap.expert_communication);
    plan.overlap.shared_expert = v.boolean("shared_expert", plan.overlap.shared_expert);
    plan.overlap.gradients = v.boolean("gradients", plan.overlap.gradients);
    plan.overlap.parameters = v.boolean("parameters", plan.overlap.parameters);
    plan.overlap.delayed_wgrad = v.boolean("delayed_wgrad", plan.overlap.delayed_wgrad);
    v.finish();
  }
  o.finish();
  return plan;
}

std::string_view name_of(PipelineKind kind) { return kPipelines[static_cast<std::size_t>(kind)]; }
std::string_view name_of(ShardingScheme scheme) { return kShardings[static_cast<std::size_t>(scheme)]; }
std::string_view name_of(LaunchMode mode) { return kLaunches[static_cast<std::size_t>(mode)]; }

}  // namespace moesim::models
