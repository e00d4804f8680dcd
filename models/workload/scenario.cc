#include "models/workload/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/workload/size_limits.h"
#include "models/workload/without_effect.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr int kMostGpusOfANode = 16;  // larger NVLink domains are racks

// Throws InputError for a part that the model lacks or that backward cannot recompute.
void check_recompute(const Scenario& s) {
  const StepRecompute& r = s.training.recompute;
  const Architecture& m = s.model;
  const auto refuse = [&](const char* name, const std::string& what) {
    throw InputError(
        fmt::format("training.recompute: found {} with model {}, which has no {}; expected a part of it",
                    name, m.name, what));
  };
  if (r.latent && m.attention.kind != Attention::Kind::kLatent && m.attention.q_rank == 0)
    refuse("mla_up_proj", "latent projections");
  if (r.shared && m.shared_ffn == 0) refuse("shared_experts", "shared experts");
  if (r.dense && !m.has_dense_ffn()) refuse("mlp", "dense FFN");
  if (r.streams && m.residual.kind != Residual::Kind::kHyper) refuse("mhc", "hyper-connections");
  if (m.experts == 0 && (r.moe || r.activation)) refuse(r.moe ? "moe" : "moe_act", "experts");
}

// Throws InputError for optimizers and adapters that are no such job's.
void check_trained(const Scenario& s) {
  const TrainingSettings& settings = s.training;
  const auto refuse = [](const char* path, const std::string& found, const char* expected) {
    throw InputError(fmt::format("training.{}: found {}, expected {}", path, found, expected));
  };
  if (settings.muon) {
    if (!s.train) refuse("muon", "true without training", "it with training");
    if (settings.shampoo) refuse("muon", "true with shampoo", "one of them");
    if (settings.router_sharding || settings.expert_sharding)
      refuse("muon", "true with modules that are sharded apart", "training.sharding alone");
  } else if (settings.newton_schulz_steps != TrainingSettings().newton_schulz_steps) {
    refuse("newton_schulz_steps", "it without training.muon", "both");
  }
  const Lora& lora = settings.lora;
  if (lora.rank == 0) {
    if (s.gave("training.lora_modules"))
      refuse("lora_modules", std::string(name_of(lora.modules)) + " without training.lora", "both");
    return;
  }
  const std::string rank = std::to_string(lora.rank);
  if (!s.train) refuse("lora", rank + " without training", "it with training");
  if (settings.muon || settings.shampoo)
    refuse("lora", rank + (settings.muon ? " with muon" : " with shampoo"), "Adam");
  if (settings.router_sharding || settings.expert_sharding)
    refuse("lora", rank + " with modules that are sharded apart", "training.sharding alone");
  if (lora.modules == Lora::Modules::kDense && s.model.shared_ffn == 0 && !s.model.has_dense_ffn())
    refuse("lora_modules",
           fmt::format("{} with model {}, which has neither dense FFN nor shared expert",
                       name_of(lora.modules), s.model.name),
           "attention");
  if (lora.modules == Lora::Modules::kExperts && s.model.experts == 0)
    refuse("lora_modules",
           fmt::format("{} with model {}, which has no experts", name_of(lora.modules), s.model.name),
           "attention+ffn");
  if (s.placement.given())
    refuse("lora", rank + " with a placement of experts, whose copies sum gradients", "experts as they are");
}

// Throws InputError for settings without effect beside the rest of the plan.
void check_plan(const Scenario& s) {
  const TrainingSettings& settings = s.training;
  if (settings.framework == Framework::kNone &&
      (settings.gemm != DType::kBf16 || settings.fused_kernels || settings.launch != LaunchMode::kEager))
    throw InputError(
        "training.framework: found none with a precision, fused kernels or a launch mode, which are a "
        "framework's; expected one of them");
  if (s.activation != DType::kBf16 && settings.framework != Framework::kNone)
    throw InputError(
        fmt::format("activation_dtype: found {} with framework {}, whose products were measured with bf16 "
                    "rows; expected it with framework none",
                    name_of(s.activation), name_of(settings.framework)));
  const auto found_with = [&](const char* path, std::string_view value, const char* expected) {
    throw InputError(fmt::format("training.{}: found {} with {}, expected it with {}", path, value,
                                 name_of(settings.sharding), expected));
  };
  using enum ShardingScheme;
  if (settings.shard_group > 0 && settings.sharding != kHsdp)
    found_with("shard_group", std::to_string(settings.shard_group), "hsdp");
  if (!settings.reshard_after_forward && settings.sharding != kFsdp && settings.sharding != kHsdp)
    found_with("reshard_after_forward", "false", "fsdp or hsdp");
  if (settings.reshard_after_forward && s.parallel.pp > 1 && s.gave("training.reshard_after_forward"))
    throw InputError(fmt::format(
        "training.reshard_after_forward: found true with parallel.pp {}, whose stages stay gathered for all "
        "microbatches; expected false, or pp 1",
        s.parallel.pp));
  if (settings.shampoo && !s.train)
    throw InputError("training.shampoo: found true without training, expected it with training");
  if (settings.shampoo && settings.sharding == kZero1) found_with("shampoo", "true", "ddp, fsdp or hsdp");
  check_trained(s);
  for (const auto& [path, module] : {std::pair{"router_sharding", settings.router_sharding},
                                     {"expert_sharding", settings.expert_sharding}})
    if (module == kHsdp && settings.sharding != kHsdp)
      found_with(path, "hsdp", "hsdp:shard=N for the rest, too");
  const auto shards = [](ShardingScheme scheme) { return scheme == kFsdp || scheme == kHsdp; };
  if (settings.fsdp_unit != FsdpUnit::kAuto && !shards(settings.sharding) &&
      !shards(settings.expert_sharding.value_or(settings.sharding)))
    found_with("fsdp_unit", name_of(settings.fsdp_unit), "fsdp or hsdp");
  if (settings.offload != Offload::kNone) {
    const auto refuse = [&](const std::string& found, const char* expected) {
      throw InputError(fmt::format("training.offload: found {} {}, expected {}", name_of(settings.offload),
                                   found, expected));
    };
    if (!s.train) refuse("without training", "none");
    if (s.cluster) {
      const DeviceLimits& device = s.cluster->profile.device();
      if (device.host_link <= 0 || (offloads_optimizer(settings.offload) && device.host_memory <= 0))
        refuse("with profile " + s.cluster->profile.name() + ", which states no host_link or no host_memory",
               "them in its device");
    }
    // FSDP's own offload also keeps the weights on the host and gathers them from there.
    if (offloads_optimizer(settings.offload)) {
      if (settings.shampoo || settings.muon) refuse(settings.muon ? "with muon" : "with shampoo", "Adam");
      for (const ShardingScheme each :
           {settings.sharding, settings.router_sharding.value_or(settings.sharding),
            settings.expert_sharding.value_or(settings.sharding)})
        if (each == kFsdp || each == kHsdp) refuse(fmt::format("with {}", name_of(each)), "ddp or zero1");
    }
    if (offloads_activations(settings.offload) && settings.recompute.full)
      refuse("with recompute full", "activations that are kept");
  }
  if (!settings.shampoo)
    for (const auto& [path, value] :
         {std::pair{"precondition_frequency", settings.preconditioning.frequency - 1},
          {"start_preconditioning_step", settings.preconditioning.start},
          {"shampoo_step", settings.preconditioning.step}})
      if (value != 0)
        throw InputError(fmt::format("training.{}: found without training.shampoo, expected both", path));
  if (settings.preconditioning.start > 0 && settings.preconditioning.step == 0)
    throw InputError(
        "training.start_preconditioning_step: found without training.shampoo_step: the mean of a period lies "
        "after the start; expected both");
  if (s.gave("faults.seed") && !s.gave("faults.jitter"))
    throw InputError("faults.seed: found without faults.jitter, expected both");
}

// Checks that the GPU's matrix units support the precision.
void check_precision(const Scenario& s) {
  const Profile& gpu = s.cluster->profile;
  if (gpu.device().has_precision(s.training.precision)) return;
  std::vector<std::string> has;
  for (const std::string_view name : precision_names())
    if (gpu.device().has_precision(name)) has.emplace_back(name);
  throw InputError(fmt::format("training.precision: found {} on {}, expected {}: what the GPU has",
                               s.training.precision, gpu.name(), join(has, ", ")));
}

// Throws InputError for settings that do not apply to one layer.
void check_layer_settings(const TrainingSettings& settings) {
  if (settings.recompute.dense)
    throw InputError(
        "training.recompute: found mlp with scope layer, which has no dense FFN; scope step has");
  if (settings.sharding == ShardingScheme::kHsdp && settings.shard_group == 0)
    throw InputError("training.sharding: found hsdp, expected hsdp:shard=N, the ranks that shard");
}

// Throws InputError for settings that do not apply to a dense model, and sets the single answer's name.
void check_dense(Scenario& s) {
  const auto fail = [&](const char* what) {
    throw InputError(
        fmt::format("model {}: found no experts with {}, expected a mixture of experts", s.model.name, what));
  };
  if (!s.is_step())
    throw InputError(
        fmt::format("model {}: found no experts with scope layer, which is a MoE layer's, expected a "
                    "mixture of experts, or --scope step, which answers dense models",
                    s.model.name));
  for (const auto& [path, what] :
       {std::pair{"parallel.ep", "expert parallelism"}, {"parallel.etp", "expert parallelism"}})
    if ((std::string_view(path) == "parallel.ep" ? s.parallel.ep : s.parallel.etp) > 1) fail(what);
  if (s.gave("dispatcher") && !(s.dispatchers.size() == 1 && s.dispatchers.front().name == kNoDispatcher))
    fail("a dispatcher");
  if (s.gave("topk")) fail("topk");
  if (s.placement.given()) fail("a placement of experts");
  if (s.routing.kind != RoutingSpec::Kind::kBalanced) fail("a routing");
  s.dispatchers.assign(1, DispatcherSpec());
  s.dispatchers.front().name = kNoDispatcher;
  s.all_dispatchers = false;
}

// Megatron before parallel folding, whose dispatcher gathers over TP x EP, splits experts like the rest.
void take_expert_tp(Scenario& s) {
  const auto legacy = [](const DispatcherSpec& d) { return d.name == "allgather-legacy"; };
  if (s.parallel.tp > 1 && !s.gave("parallel.etp") &&
      std::any_of(s.dispatchers.begin(), s.dispatchers.end(), legacy))
    s.parallel.etp = s.parallel.tp;
}

// Jobs of several racks use a number of a rack's GPUs that groups of ranks divide: 64 of 72 for groups of 32.
void take_blocks(Scenario& s) {
  std::shared_ptr<const Cluster>& cluster = s.cluster;
  if (!cluster || cluster->nvlink.domain != cluster->gpus_per_node ||
      cluster->nvlink.domain <= kMostGpusOfANode)
    return;
  const std::int64_t domain = cluster->nvlink.domain;
  const Parallel& p = s.parallel;
  if (p.tp < 1 || p.cp < 1 || p.etp < 1 || p.ep < 1 || p.tp * p.cp > kMaxSize || p.etp * p.ep > kMaxSize)
    return;
  const std::int64_t group = std::lcm(p.tp * p.cp, p.etp * p.ep);
  const bool one_rack =
      cluster->node_count == Cluster::NodeCount::kGiven
          ? cluster->nodes == 1
          : (s.gpus > 0 ? s.gpus : p.tp * p.cp * p.pp * (s.gave("parallel.dp") ? p.dp : 1)) <= domain;
  if (one_rack || domain % group == 0) return;
  std::int64_t block = domain / group * group;
  for (std::int64_t b = domain; group > domain && block == 0; --b)
    if (group % b == 0) block = b;
  auto blocks = std::make_shared<Cluster>(*cluster);
  blocks->gpus_per_node = blocks->nvlink.domain = static_cast<int>(block);
  blocks->nic.ports_per_node = std::max(1, static_cast<int>(cluster->nic.ports_per_node * block / domain));
  s.model.remarks.push_back(
      fmt::format("{}: {} of the {} GPUs of a rack are used, which groups of {} ranks divide", cluster->name,
                  block, domain, group));
  cluster = std::move(blocks);
}

}  // namespace

void Scenario::set_model(const std::string& name_or_path) { model = Architecture::load(name_or_path); }

void Scenario::set_cluster(const std::string& name_or_path) {
  cluster = std::make_shared<const Cluster>(Cluster::load(name_or_path));
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

void Scenario::set_activation(const std::string& name) {
  activation = dtype_named(name);
  if (activation != DType::kBf16 && activation != DType::kFp16 && activation != DType::kFp32)
    throw InputError(fmt::format("activation dtype: found {}, expected bf16, fp16 or fp32", in_quotes(name)));
}

bool Scenario::sharding_asked() const {
  return gave("training.sharding") || training.sharding != ShardingScheme::kZero1;
}

std::string beside(const std::string& file, const std::string& path) {
  const std::filesystem::path from_file = std::filesystem::path(file).parent_path() / path;
  return std::filesystem::path(path).is_relative() && path_exists(from_file) ? from_file.string() : path;
}

Scopes scope_of(const Scenario& scenario) { return scenario.is_step() ? Scopes::kStep : Scopes::kLayer; }

void Scenario::take_mesh() {
  const std::int64_t dp = mesh.replicate * mesh.shard * mesh.ep;
  struct Size {
    const char* path;
    std::int64_t Parallel::*member;
    std::int64_t value;
  };
  for (const auto& [path, member, value] :
       {Size{"parallel.tp", &Parallel::tp, mesh.tp}, Size{"parallel.cp", &Parallel::cp, mesh.cp},
        Size{"parallel.ep", &Parallel::ep, mesh.ep}, Size{"parallel.pp", &Parallel::pp, mesh.pp},
        Size{"parallel.dp", &Parallel::dp, dp}}) {
    if (gave(path) && parallel.*member != value)
      throw InputError(fmt::format("{}: found {} beside a mesh that makes it {}, expected one of them", path,
                                   parallel.*member, value));
    parallel.*member = value;
    give(path);
  }
  parallel.mesh_ep = mesh.ep;
  // FSDP over shard, an all-reduce over replicate; a shard of one rank is NO_SHARD: plain data parallelism.
  const ShardingScheme scheme = mesh.shard == 1       ? ShardingScheme::kDdp
                                : mesh.replicate == 1 ? ShardingScheme::kFsdp
                                                      : ShardingScheme::kHsdp;
  const std::int64_t group = scheme == ShardingScheme::kHsdp ? mesh.shard : 0;
  const bool falls_back = scheme == ShardingScheme::kDdp && training.sharding == ShardingScheme::kFsdp;
  if (gave("training.sharding") && !falls_back &&
      (training.sharding != scheme || training.shard_group != group))
    throw InputError(fmt::format(
        "training.sharding: found {} beside a mesh of replicate {} and shard {}, expected {}",
        name_of(training.sharding), mesh.replicate, mesh.shard,
        group > 0 ? fmt::format("{}:shard={}", name_of(scheme), group) : std::string(name_of(scheme))));
  training.sharding = scheme;
  training.shard_group = group;
  give("training.sharding");
  if (group > 0) give("training.shard_group");
}

std::int64_t Scenario::job_gpus() const { return gpus > 0 ? gpus : cluster->ranks(); }

bool Scenario::gpus_open() const {
  return gpus == 0 && (!cluster || cluster->node_count == Cluster::NodeCount::kOpen);
}

// Sets as many nodes as hold the job's GPUs; refuses a cluster with another number.
void Scenario::take_gpus() {
  if (gpus == 0) return;
  if (!cluster) set_cluster("dgx-h100");
  if (cluster->node_count != Cluster::NodeCount::kGiven) {
    cluster = std::make_shared<const Cluster>(cluster->holding(gpus));
  } else if (gpus > cluster->ranks() || gpus <= cluster->ranks() - cluster->gpus_per_node) {
    throw InputError(
        fmt::format("gpus: found {} with cluster {} of {} GPUs, expected {} to {}, or a cluster without its "
                    "number of nodes",
                    gpus, cluster->name, cluster->ranks(), cluster->ranks() - cluster->gpus_per_node + 1,
                    cluster->ranks()));
  }
}

// Sets the microbatches that make the batch on so many data-parallel ranks.
void Scenario::take_batch(Parallel& p) const {
  if (!batch.given()) return;
  const std::int64_t found = batch.microbatches(p.dp, p.micro_batch, p.seq);
  if (found == 0)
    throw InputError(
        fmt::format("parallel.global_batch: found {} with dp {} and {} sequences in a microbatch, expected a "
                    "multiple of {} "
                    "sequences of {} tokens",
                    batch.text(), p.dp, p.micro_batch, p.dp * p.micro_batch, p.seq));
  if (gave("parallel.microbatches") && p.microbatches != found)
    throw InputError(
        fmt::format("parallel.microbatches: found {} beside a global batch of {}, which makes it {}; "
                    "expected one of them",
                    p.microbatches, batch.text(), found));
  p.microbatches = found;
}

void Scenario::resolve() {
  if (mesh.given) take_mesh();
  if (const Field* unused = unused_field(*this))
    throw InputError(unused_message(*unused, unused->path, *this));
  check_plan(*this);
  if (!is_step()) check_layer_settings(training);
  if (model.hidden == 0) throw InputError("scenario: found no model, expected \"model\" or --model NAME");
  if (model.experts == 0) check_dense(*this);
  check_recompute(*this);
  if (gave("training.overload.recorder") && training.launch != LaunchMode::kGraphs)
    throw InputError(fmt::format(
        "training.overload.recorder: found {} with launch {}, expected graphs: without them every step is "
        "recorded",
        name_of(training.overload.recorder), name_of(training.launch)));
  if (training.overload.allgather_quirk &&
      std::none_of(dispatchers.begin(), dispatchers.end(), [](const DispatcherSpec& d) {
        return d.name.starts_with("allgather") || d.name == "all";
      }))
    throw InputError(
        "training.overload.allgather_quirk: found no allgather dispatcher, expected one: only its log "
        "differs");
  take_expert_tp(*this);
  if (topk == 0) topk = model.topk;
  if (model.experts > 0 && topk > model.experts)
    throw InputError(
        fmt::format("topk: found {}, expected at most the model's {} experts", topk, model.experts));
  take_blocks(*this);
  take_gpus();
  Parallel p = parallel;
  if (!gave("parallel.dp")) {
    p.dp = 1;
    // Enough data-parallel ranks that the expert grid fits a pipeline stage.
    const std::int64_t dense = p.tp * p.cp, group = p.etp * p.ep;
    if (p.tp < 1 || p.cp < 1 || p.ep < 1 || p.etp < 1 || p.pp < 1 || dense > kMaxSize || group > kMaxSize)
      throw InputError("parallel: found a size outside 1 to 2^31, expected a number of ranks");
    p.dp = group / std::gcd(dense, group);
    const std::int64_t smallest = std::max<std::int64_t>(1, dense * p.dp);
    if (!gpus_open()) {
      const std::int64_t stage = job_gpus() / p.pp;
      if (stage >= smallest) p.dp = stage / smallest * p.dp;
    }
  }
  // With copies of experts, EP divides their slots.
  const std::int64_t slots =
      std::max<std::int64_t>(placement.slots, static_cast<std::int64_t>(placement.expert_of.size()));
  if (slots > 0 && p.ep > 0 && slots % p.ep != 0)
    throw InputError(fmt::format("placement: found {} slots, expected a multiple of ep {}", slots, p.ep));
  p.validate(std::max<std::int64_t>(1, slots > 0 ? slots : model.experts));
  if (gpus_open()) {
    if (!cluster) set_cluster("dgx-h100");
    cluster = std::make_shared<const Cluster>(cluster->holding(p.world()));
  }
  if (p.world() > job_gpus())
    throw InputError(
        fmt::format("cluster {}: found {} GPUs, expected at least tp x cp x dp x pp = {} for this plan",
                    cluster->name, job_gpus(), p.world()));
  take_batch(p);
  parallel = p;
  drop_without_effect(*this);
  faults.check_against(*cluster);
  ownership.check_beside(prices);
  const std::int64_t shard = training.shard_group;
  if (shard > 0 && p.data_ranks() % shard != 0)
    throw InputError(
        fmt::format("sharding: found shard={}, expected a divisor of dp x cp = {}", shard, p.data_ranks()));
  if (shard > 0 && p.edp() > 1 && p.edp() % std::min(p.edp(), shard) != 0)
    throw InputError(fmt::format(
        "sharding: found shard={}, expected one that divides the {} replicas of an expert", shard, p.edp()));
  if (shard > 0 && p.ep > 1 && !all_dispatchers && !mesh.given &&
      (shard * p.cp * p.tp) % (p.ep * p.etp) != 0 &&
      std::any_of(dispatchers.begin(), dispatchers.end(),
                  [](const DispatcherSpec& d) { return d.name.starts_with("torchtitan"); }))
    throw InputError(
        fmt::format("sharding: found shard={} with ep {}, expected shard x cp x tp to be a multiple of it: "
                    "torchtitan's sparse mesh shards experts over shard x cp x tp / ep ranks",
                    shard, p.ep));
  if (placement.given() && placement.slots > 0 && placement.slots < model.experts)
    throw InputError(fmt::format("placement: found {} slots, expected at least the model's {} experts",
                                 placement.slots, model.experts));
  if (model.experts > 0 && model.expert_ffn % p.etp != 0)
    throw InputError(fmt::format("parallel.etp: found {}, expected a divisor of the experts' inner size {}",
                                 p.etp, model.expert_ffn));
  if (training.stages_inside) {
    const std::string found = fmt::format("training.rank_order: found {}", training.rank_order());
    if (training.unfolded || p.mesh_ep > 1 || p.edp() != p.dp)
      throw InputError(
          fmt::format("{} with {} replicas of the dense part and {} of an expert, expected equally many "
                      "(etp x ep = tp x cp): Megatron's pipeline groups would differ",
                      found, p.dp, p.edp()));
  }
  check_precision(*this);
  check_sizes(*this);
  resolved = true;
}

}  // namespace moesim::models
