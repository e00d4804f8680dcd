#include "models/workload/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// Throws InputError for what says nothing beside the rest of the plan.
void check_plan(const Scenario& s) {
  const TrainingPlan& plan = s.training;
  if (plan.framework == Framework::kNone &&
      (plan.gemm != DType::kBf16 || plan.fused_kernels || plan.launch != LaunchMode::kEager))
    throw InputError(
        "training.framework: found none with a precision, fused kernels or a launch mode, which are a "
        "framework's; expected one of them");
  const auto found_with = [&](const char* path, std::string_view value, const char* expected) {
    throw InputError(fmt::format("training.{}: found {} with {}, expected it with {}", path, value,
                                 name_of(plan.sharding), expected));
  };
  using enum ShardingScheme;
  if (plan.shard_group > 0 && plan.sharding != kHsdp)
    found_with("shard_group", std::to_string(plan.shard_group), "hsdp");
  if (!plan.reshard_after_forward && plan.sharding != kFsdp && plan.sharding != kHsdp)
    found_with("reshard_after_forward", "false", "fsdp or hsdp");
  if (plan.shampoo && plan.sharding != kDdp && plan.sharding != kHsdp)
    found_with("shampoo", "true", "ddp or hsdp");
  if (s.gave("faults.seed") && !s.gave("faults.jitter"))
    throw InputError("faults.seed: found without faults.jitter, which it is of; expected both");
}

// Throws InputError for what one layer has no part for.
void check_layer_plan(const TrainingPlan& plan) {
  if (plan.recompute.dense)
    throw InputError(
        "training.recompute: found mlp with scope layer, which has no dense FFN; scope step has");
  if (plan.sharding == ShardingScheme::kHsdp && plan.shard_group == 0)
    throw InputError("training.sharding: found hsdp, expected hsdp:shard=N, the ranks that shard");
}

}  // namespace

void Scenario::set_model(const std::string& name_or_path) {
  model = Architecture::load(name_or_path);
  const auto names = Architecture::names();
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) files.emplace_back(name_or_path);
  if (model.name == "custom" || model.name == "hugging-face")
    model.name = std::filesystem::path(name_or_path).stem().string();
}

void Scenario::set_cluster(const std::string& name_or_path) {
  cluster = std::make_shared<const Cluster>(Cluster::load(name_or_path));
  if (is_file(name_or_path)) files.emplace_back(name_or_path);
}

void Scenario::set_dispatchers(const std::string& text) {
  dispatchers = DispatcherSpec::parse_list(text);
  all_dispatchers = trim(text) == "all";
}

void Scenario::set_router_dtype(const std::string& name) {
  router_dtype = dtype_named(name);
  if (router_dtype != DType::kBf16 && router_dtype != DType::kFp16 && router_dtype != DType::kFp32 &&
      router_dtype != DType::kFp64)
    throw InputError(
        fmt::format("router dtype: found {}, expected bf16, fp16, fp32 or fp64", in_quotes(name)));
}

bool Scenario::sharding_asked() const {
  return gave("training.sharding") || training.sharding != ShardingScheme::kZero1;
}

std::string beside(const std::string& file, const std::string& path) {
  const std::filesystem::path from_file = std::filesystem::path(file).parent_path() / path;
  return std::filesystem::path(path).is_relative() && path_exists(from_file) ? from_file.string() : path;
}

Scopes scope_of(const Scenario& scenario) {
  return scenario.scope == Scenario::Scope::kStep ? Scopes::kStep : Scopes::kLayer;
}

void Scenario::resolve() {
  if (const Field* unused = unused_field(*this))
    throw InputError(unused_message(*unused, unused->path, *this));
  check_plan(*this);
  if (scope == Scope::kLayer) check_layer_plan(training);
  if (model.hidden == 0) throw InputError("scenario: found no model, expected \"model\" or --model NAME");
  if (model.experts == 0 || model.topk == 0)
    throw InputError(fmt::format("model {}: found no experts, expected a mixture of experts", model.name));
  if (topk == 0) topk = model.topk;
  if (topk > model.experts)
    throw InputError(
        fmt::format("topk: found {}, expected at most the model's {} experts", topk, model.experts));
  Parallel p = parallel;
  if (!gave("parallel.dp")) {
    p.dp = 1;
    // Enough data-parallel ranks that the expert grid fits a pipeline stage.
    const std::int64_t dense = p.tp * p.cp, group = p.etp * p.ep;
    if (p.tp < 1 || p.cp < 1 || p.ep < 1 || p.etp < 1 || p.pp < 1 || dense > kMaxSize || group > kMaxSize)
      throw InputError("parallel: found a size outside 1 to 2^31, expected a number of ranks");
    p.dp = group / std::gcd(dense, group);
    const std::int64_t smallest = dense * p.dp;
    if (cluster) {
      const std::int64_t stage = cluster->ranks() / p.pp;
      if (stage >= smallest) p.dp = stage / smallest * p.dp;
    }
  }
  p.validate(model.experts);
  if (cluster && p.world() > cluster->ranks())
    throw InputError(
        fmt::format("cluster {}: found {} GPUs, expected at least tp x cp x dp x pp = {} for this plan",
                    cluster->name, cluster->ranks(), p.world()));
  if (!cluster)
    cluster = std::make_shared<const Cluster>(Cluster::load(fmt::format("dgx-h100x{}", (p.world() + 7) / 8)));
  parallel = p;
  faults.check_against(*cluster);
  const std::int64_t shard = training.shard_group;
  if (shard > 0 && p.dp * p.cp % shard != 0)
    throw InputError(
        fmt::format("sharding: found shard={}, expected a divisor of dp x cp = {}", shard, p.dp * p.cp));
  if (shard > 0 && p.edp() > 1 && p.edp() % std::min(p.edp(), shard) != 0)
    throw InputError(fmt::format(
        "sharding: found shard={}, expected one that divides the {} replicas of an expert", shard, p.edp()));
  if (placement.given() && placement.slots > 0 && placement.slots < model.experts)
    throw InputError(fmt::format("placement: found {} slots, expected at least the model's {} experts",
                                 placement.slots, model.experts));
  if (model.expert_ffn % p.etp != 0)
    throw InputError(fmt::format("parallel.etp: found {}, expected a divisor of the experts' inner size {}",
                                 p.etp, model.expert_ffn));
  resolved = true;
}

}  // namespace moesim::models
