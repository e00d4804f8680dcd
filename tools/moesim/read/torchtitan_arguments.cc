// torchtitan's configuration (TOML): keys as its JobConfig has them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

namespace {

using models::Scenario;
using models::ShardingScheme;

struct Flavor {
  std::string_view model, flavor, name;
};
// torchtitan's models that are also built in here, by name.
constexpr std::array<Flavor, 8> kFlavors{{{"deepseek_v3", "671B", "deepseek-v3"},
                                          {"deepseek_v3", "16B", "deepseek-v2-lite"},
                                          {"llama4", "17bx16e", "llama4-scout"},
                                          {"llama4", "17bx128e", "llama4-maverick"},
                                          {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
                                          {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
                                          {"gpt_oss", "20b", "gpt-oss-20b"},
                                          {"gpt_oss", "120b", "gpt-oss-120b"}}};

void read_model(JobReader& r) {
  const std::string model = r.text("model.name"), flavor = r.text("model.flavor");
  const auto at =
      std::ranges::find_if(kFlavors, [&](const Flavor& f) { return f.model == model && f.flavor == flavor; });
  if (at != kFlavors.end()) {
    r.set("model.base", std::string(at->name));
  } else if (r.has("model.flavor")) {
    r.approximate("model.flavor", fmt::format("{} {} is not built in: --model says it", model, flavor));
  }
}

void write_model(const Scenario& s, Arguments& out) {
  const auto at = std::ranges::find(kFlavors, s.model.name, &Flavor::name);
  if (at == kFlavors.end()) return;
  out.emplace_back("model.name", at->model);
  out.emplace_back("model.flavor", at->flavor);
}

void read_parallel(JobReader& r) {
  const std::int64_t tp = r.whole_or("parallelism.tensor_parallel_degree", 1);
  const std::int64_t cp = r.whole_or("parallelism.context_parallel_degree", 1);
  r.set("parallel.tp", tp);
  r.set("parallel.cp", cp);
  r.set("parallel.ep", r.whole_or("parallelism.expert_parallel_degree", 1));
  r.set("parallel.etp", r.whole_or("parallelism.expert_tensor_parallel_degree", 1));
  const std::int64_t copies = r.whole_or("parallelism.data_parallel_replicate_degree", 1);
  const std::int64_t shards = r.whole("parallelism.data_parallel_shard_degree", -1).value_or(-1);
  if (shards == 0) r.fail("parallelism.data_parallel_shard_degree", "-1, or a number of ranks");
  if (copies > 1 && shards < 0)
    r.fail("parallelism.data_parallel_replicate_degree", "data_parallel_shard_degree as a number beside it");
  if (shards > 0) r.set("parallel.dp", copies * shards);
  if (copies > 1 && shards > 1)
    r.set("training.sharding", fmt::format("hsdp:shard={}", shards * cp));
  else
    r.set("training.sharding", shards == 1 ? "ddp" : "fsdp");
  const std::string reshard =
      r.choice("parallelism.fsdp_reshard_after_forward", "default", {"default", "always", "never"});
  if (shards != 1 && reshard == "never") r.set("training.reshard_after_forward", false);
  if (r.flag("parallelism.disable_loss_parallel")) r.set("training.loss_parallel", false);
}

void write_parallel(const Scenario& s, Arguments& out) {
  const models::Parallel& p = s.parallel;
  const bool hsdp = s.training.sharding == ShardingScheme::kHsdp,
             ddp = s.training.sharding == ShardingScheme::kDdp;
  const std::int64_t shards = ddp    ? 1
                              : hsdp ? std::max<std::int64_t>(1, s.training.shard_group / p.cp)
                                     : p.dp;
  out.emplace_back("parallelism.data_parallel_replicate_degree", p.dp / shards);
  out.emplace_back("parallelism.data_parallel_shard_degree", shards);
  if (!ddp)
    out.emplace_back("parallelism.fsdp_reshard_after_forward",
                     s.training.reshard_after_forward ? "default" : "never");
  out.emplace_back("parallelism.tensor_parallel_degree", p.tp);
  out.emplace_back("parallelism.context_parallel_degree", p.cp);
  out.emplace_back("parallelism.expert_parallel_degree", p.ep);
  out.emplace_back("parallelism.expert_tensor_parallel_degree", p.etp);
  if (!s.training.loss_parallel) out.emplace_back("parallelism.disable_loss_parallel", true);
}

void read_batch(JobReader& r) {
  const std::int64_t pp = r.whole_or("parallelism.pipeline_parallel_degree", 1);
  const std::int64_t local = r.whole_or("training.local_batch_size", 8);
  const std::int64_t micro = pp > 1 ? r.whole_or("parallelism.pipeline_parallel_microbatch_size", 1) : local;
  if (local % micro != 0)
    r.fail("training.local_batch_size", fmt::format("a multiple of the microbatch {}", micro));
  r.set("parallel.pp", pp);
  r.set("parallel.micro_batch", micro);
  r.set("parallel.seq", r.whole_or("training.seq_len", 2048));
  const std::int64_t global = r.whole("training.global_batch_size", -1).value_or(-1);
  if (global > 0)
    r.job().global_batch = global;
  else
    r.set("parallel.microbatches", local / micro);
  if (global > 0 && pp > 1)
    r.approximate("training.global_batch_size", "steps that add up gradients are one pipeline here");
}

void write_batch(const Scenario& s, Arguments& out) {
  const models::Parallel& p = s.parallel;
  out.emplace_back("training.local_batch_size", p.pp > 1 ? p.micro_batch * p.microbatches : p.micro_batch);
  if (p.pp > 1) {
    out.emplace_back("parallelism.pipeline_parallel_degree", p.pp);
    out.emplace_back("parallelism.pipeline_parallel_microbatch_size", p.micro_batch);
  } else {
    out.emplace_back("training.global_batch_size", p.micro_batch * p.microbatches * p.dp);
  }
  out.emplace_back("training.seq_len", p.seq);
}

void read_schedule(JobReader& r) {
  if (r.whole_or("parallelism.pipeline_parallel_degree", 1) == 1) return;
  const std::string schedule = r.text("parallelism.pipeline_parallel_schedule", "1F1B");
  if (schedule != "1F1B" && schedule != "Interleaved1F1B")
    r.fail("parallelism.pipeline_parallel_schedule",
           "1F1B or Interleaved1F1B: torchtitan's others are not modelled here");
  // torchtitan's default number of stages per rank.
  r.set("parallel.vpp", schedule == "1F1B" ? 1 : 2);
  for (const char* less : {"parallelism.pipeline_parallel_first_stage_less_layers",
                           "parallelism.pipeline_parallel_last_stage_less_layers"})
    if (r.has(less)) r.approximate(less, "stages are cut so that the heaviest is as light as possible");
  if (const auto layers = r.whole("parallelism.pipeline_parallel_layers_per_stage"))
    r.fail("parallelism.pipeline_parallel_layers_per_stage",
           "nothing: --vpp says how many stages a rank has");
}

void write_schedule(const Scenario& s, Arguments& out) {
  if (s.parallel.pp > 1)
    out.emplace_back("parallelism.pipeline_parallel_schedule",
                     s.parallel.vpp > 1 ? "Interleaved1F1B" : "1F1B");
}

void read_precision(JobReader& r) {
  const std::string type = r.text("training.mixed_precision_param", "bfloat16");
  if (type != "bfloat16") r.fail("training.mixed_precision_param", "bfloat16");
  std::string precision = "bf16";
  for (const char* key : {"model.converters", "quantize.converters"})
    for (const std::string& converter : r.list(key)) {
      const bool mx = converter.ends_with("mx") || converter.find("mx") != std::string::npos;
      if (mx || converter.find("float8") != std::string::npos)
        precision = mx ? "mxfp8" : "fp8";
      else
        r.fail(key, "float8 or mx: other conversions are not modelled here");
    }
  r.set("training.precision", precision);
  // Weights of the whole job in bf16: FSDP shards them in that type, and Adam keeps its moments in it.
  if (r.choice("training.dtype", "float32", {"float32", "bfloat16"}) == "bfloat16")
    r.set("training.optimizer_dtypes", "bf16,bf16,bf16");
  if (precision != "bf16") r.set("training.fp8_attention", true);
  r.set("training.gradient_bytes",
        r.choice("training.mixed_precision_reduce", "float32", {"float32", "bfloat16"}) == "float32" ? 4 : 2);
}

void write_precision(const Scenario& s, Arguments& out) {
  out.emplace_back("training.mixed_precision_param", "bfloat16");
  out.emplace_back("training.mixed_precision_reduce",
                   s.training.gradient_bytes == 4 ? "float32" : "bfloat16");
  const models::DType bf16 = models::DType::kBf16;
  if (s.training.optimizer == models::OptimizerTypes{bf16, bf16, bf16})
    out.emplace_back("training.dtype", "bfloat16");
  const std::string& p = s.training.precision;
  if (p != "fp8" && p != "mxfp8") return;
  const std::string type = p == "fp8" ? "float8" : "mx", experts = "quantize.grouped_mm." + type;
  nlohmann::ordered_json converters{"quantize.linear." + type};
  if (s.model.experts > 0) {
    converters.push_back(experts);
    out.emplace_back(experts + ".fqns", nlohmann::ordered_json{"experts"});
  }
  out.emplace_back("model.converters", converters);
}

void read_recompute(JobReader& r) {
  const std::string mode =
      r.choice("activation_checkpoint.mode", "selective", {"none", "full", "selective", "memory_budget"});
  if (mode == "memory_budget") r.fail("activation_checkpoint.mode", "none, full or selective");
  if (mode == "selective") {
    if (!r.has("activation_checkpoint.selective_ac_option"))
      r.approximate("activation_checkpoint.mode",
                    "without selective_ac_option every second layer is recomputed; priced as op");
    if (const std::string option = r.text("activation_checkpoint.selective_ac_option", "op"); option != "op")
      r.fail("activation_checkpoint.selective_ac_option", "op: recomputing some layers is not modelled here");
  }
  r.set("training.recompute", mode == "selective" ? "op" : mode);
}

void write_recompute(const Scenario& s, Arguments& out) {
  const models::StepRecompute& c = s.training.recompute;
  out.emplace_back("activation_checkpoint.mode", !c.any() ? "none" : c.full ? "full" : "selective");
  if (c.any() && !c.full) out.emplace_back("activation_checkpoint.selective_ac_option", "op");
}

void read_optimizer(JobReader& r) {
  r.only_adam("optimizer.name", {"AdamW", "Adam"});
  if (r.choice("optimizer.implementation", "fused", {"fused", "foreach", "for-loop"}) == "for-loop")
    r.set("training.foreach", false);
  if (r.flag("training.enable_cpu_offload"))
    r.fail("training.enable_cpu_offload", "false: FSDP's offloading is not modelled here");
}

void write_optimizer(const Scenario& s, Arguments& out) {
  out.emplace_back("optimizer.name", "AdamW");
  out.emplace_back("optimizer.implementation", s.training.foreach ? "fused" : "for-loop");
}

void read_dispatcher(JobReader& r) {
  const std::int64_t ep = r.whole_or("parallelism.expert_parallel_degree", 1);
  const std::string model = r.text("model.name");
  const bool dense = model.starts_with("llama3") || model == "flux";
  if (!dense && !model.empty()) {
    r.set("dispatcher", ep > 1 ? "torchtitan-alltoall" : "torchtitan-local");
    r.set("router_dtype", "fp32");
  }
  if (r.text("parallelism.expert_parallel_comm_backend", "standard") != "standard")
    r.fail("parallelism.expert_parallel_comm_backend",
           "standard: torchtitan's way with DeepEP is not modelled here");
  if (r.flag("debug.moe_force_load_balance") || r.flag("training.debug_moe_force_load_balance"))
    r.set("routing", "round-robin");
}

void write_dispatcher(const Scenario& s, Arguments& out) {
  if (s.routing.text == "round-robin") out.emplace_back("debug.moe_force_load_balance", true);
}

}  // namespace

std::vector<ArgumentRule> torchtitan_rules() {
  return {
      {{"model.name", "model.flavor"}, read_model, write_model},
      {{"parallelism.tensor_parallel_degree", "parallelism.context_parallel_degree",
        "parallelism.expert_parallel_degree", "parallelism.expert_tensor_parallel_degree",
        "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree",
        "parallelism.fsdp_reshard_after_forward", "parallelism.disable_loss_parallel"},
       read_parallel,
       write_parallel},
      {{"parallelism.pipeline_parallel_degree", "training.local_batch_size",
        "parallelism.pipeline_parallel_microbatch_size", "training.global_batch_size", "training.seq_len"},
       read_batch,
       write_batch},
      {{"parallelism.pipeline_parallel_schedule", "parallelism.pipeline_parallel_layers_per_stage",
        "parallelism.pipeline_parallel_first_stage_less_layers",
        "parallelism.pipeline_parallel_last_stage_less_layers"},
       read_schedule,
       write_schedule},
      {{"training.mixed_precision_param", "training.mixed_precision_reduce", "training.dtype",
        "model.converters", "quantize.converters"},
       read_precision,
       write_precision},
      {{"activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"},
       read_recompute,
       write_recompute},
      {{"optimizer.name", "optimizer.implementation", "training.enable_cpu_offload"},
       read_optimizer,
       write_optimizer},
      {{"parallelism.expert_parallel_comm_backend", "debug.moe_force_load_balance",
        "training.debug_moe_force_load_balance"},
       read_dispatcher,
       write_dispatcher}};
}

}  // namespace moesim::tools
