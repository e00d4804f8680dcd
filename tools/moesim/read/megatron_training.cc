// Megatron's arguments of how a step trains: recomputation, sharding, overlap, optimizer, CUDA graphs.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools::megatron {

namespace {

using models::Scenario;
using models::ShardingScheme;
using nlohmann::ordered_json;

void read_recompute(JobReader& r) {
  const std::string granularity = r.choice("recompute_granularity", "", {"full", "selective"});
  std::vector<std::string> modules = r.list("recompute_modules");
  if (granularity == "full") {
    const std::string method = r.choice("recompute_method", "uniform", {"uniform", "block"});
    const std::int64_t each = r.whole_or("recompute_num_layers", 1);
    const std::int64_t stages = r.whole_or("pipeline_model_parallel_size", 1);
    const std::int64_t own = (r.whole("num_layers").value_or(0) + stages - 1) / stages;
    if (method == "block" && each < own)
      r.fail("recompute_num_layers",
             fmt::format("all {} layers of a stage: recomputing some is not modelled here", own));
    if (method == "uniform" && each > 1)
      r.approximate("recompute_num_layers", "every layer keeps its input, not every so many-th");
    r.set("training.recompute", "full");
    return;
  }
  if (r.flag("recompute_activations") || granularity == "selective") {
    if (modules.empty()) modules = {"core_attn"};
  } else {
    modules.clear();
  }
  if (r.flag("moe_layer_recompute") && std::ranges::find(modules, "moe") == modules.end())
    modules.emplace_back("moe");
  if (modules.empty()) return;
  try {
    auto recompute = models::StepRecompute::parse(join(modules, "+"));
    if (recompute.operations) throw InputError("op is torchtitan's");
    // Megatron takes mlp where no layer has a dense FFN, and does nothing.
    const nlohmann::ordered_json& job = r.job().scenario;
    if (recompute.dense && job.contains("model") &&
        !models::Architecture::parse(JsonNode::from_json(job["model"], "model")).has_dense_ffn()) {
      recompute.dense = false;
      if (!recompute.any()) r.without_effect("recompute_modules", "no layer has a dense FFN");
    }
    r.set("training.recompute", recompute.text());
  } catch (const InputError& error) {
    r.fail("recompute_modules", std::string("other modules: ") + error.what());
  }
}

void write_recompute(const Scenario& s, Arguments& out) {
  const models::StepRecompute& c = s.training.recompute;
  if (!c.any()) return;
  if (c.operations)
    throw InputError("recompute: found op, which is torchtitan's; expected modules of --recompute-modules");
  out.emplace_back("recompute_granularity", c.full ? "full" : "selective");
  if (c.full) {
    out.emplace_back("recompute_method", "uniform");
    out.emplace_back("recompute_num_layers", 1);
    return;
  }
  ordered_json modules = ordered_json::array();
  const std::string text = c.text();
  for (const std::string_view name : split(text, '+')) modules.push_back(name);
  out.emplace_back("recompute_modules", std::move(modules));
}

// Muon beside a distributed optimizer is its layer-wise one, which shares out whole matrices
// (megatron/core/optimizer/optimizer_config.py); "dist_muon" is an older word for the two.
void read_sharding(JobReader& r) {
  const bool by_layers = r.text("optimizer", "adam") == "dist_muon";
  if (!by_layers) r.forget_place();
  const bool zero1 =
      r.flag("use_distributed_optimizer") || r.flag("use_layer_wise_distributed_optimizer") || by_layers;
  const bool own = r.flag("use_megatron_fsdp") || r.flag("use_custom_fsdp");
  std::string sharding = zero1 ? "zero1" : "ddp";
  if (own) {
    const std::string strategy = r.choice("data_parallel_sharding_strategy", "no_shard",
                                          {"no_shard", "optim", "optim_grads", "optim_grads_params"});
    sharding = strategy == "optim_grads_params" ? "fsdp"
               : strategy == "optim_grads"      ? "zero2"
               : strategy == "optim"            ? "zero1"
                                                : "ddp";
  }
  if (r.flag("use_torch_fsdp2")) {
    sharding = "fsdp";
    if (!switched(r, "torch_fsdp2_reshard_after_forward", "torch_fsdp2_no_reshard_after_forward", true))
      r.set("training.reshard_after_forward", false);
  }
  r.set("training.sharding", sharding);
}

void write_sharding(const Scenario& s, Arguments& out) {
  if (s.training.sharding == ShardingScheme::kZero1) out.emplace_back("use_distributed_optimizer", true);
  const bool whole = s.training.sharding == ShardingScheme::kZero2;
  if (whole || s.training.sharding == ShardingScheme::kFsdp) {
    out.emplace_back("use_megatron_fsdp", true);
    out.emplace_back("data_parallel_sharding_strategy", whole ? "optim_grads" : "optim_grads_params");
    out.emplace_back("use_distributed_optimizer", true);
    out.emplace_back("ckpt_format", "fsdp_dtensor");
  }
  if (s.training.sharding == ShardingScheme::kHsdp)
    throw InputError(
        "sharding: found hsdp, which is not written as arguments of Megatron, expected ddp, zero1, zero2 or fsdp");
}

void read_overlap(JobReader& r) {
  r.set("training.overlap.gradients", r.flag("overlap_grad_reduce"));
  r.set("training.overlap.parameters", r.flag("overlap_param_gather"));
  // Returns whether a switch is on and has an effect.
  const auto works = [&](const char* name, bool possible, const char* otherwise) {
    const bool on = r.flag(name);
    if (on && !possible) r.without_effect(name, otherwise);
    return on && possible;
  };
  const bool sends = !has_model(r) || experts_of(r) > 0;
  const bool beside = works("overlap_moe_expert_parallel_comm", sends, "the model has no experts");
  r.set("training.overlap.expert_communication", beside);
  r.set("training.overlap.delayed_wgrad",
        works("delay_wgrad_compute", beside, "no expert communication overlaps, whose idle time it fills"));
}

void write_overlap(const Scenario& s, Arguments& out) {
  const models::StepOverlap& o = s.training.overlap;
  put_flag(out, o.gradients, "overlap_grad_reduce");
  // Without a distributed optimizer there is nothing to gather.
  put_flag(out, o.parameters && s.training.sharding != ShardingScheme::kDdp, "overlap_param_gather");
  put_flag(out, o.expert_communication, "overlap_moe_expert_parallel_comm");
  put_flag(out, o.delayed_wgrad, "delay_wgrad_compute");
}

void read_overload_log(JobReader& r) {
  if (r.flag("log_overload_factor")) r.set("training.overload.report", "sequential");
}

void write_overload_log(const Scenario& s, Arguments& out) {
  put_flag(out, s.training.overload.report != models::OverloadLog::Report::kNone, "log_overload_factor");
}

void read_optimizer(JobReader& r) {
  if (const std::string name = r.text("optimizer", "adam"); name == "muon" || name == "dist_muon") {
    r.set("training.muon", true);
    r.set("training.newton_schulz_steps", r.whole_or("muon_num_ns_steps", 5));
    if (r.text("muon_tp_mode", "blockwise") != "blockwise")
      r.fail("muon_tp_mode", "blockwise: others gather over tensor parallelism, which is not modelled here");
    if (r.text("muon_scalar_optimizer", "adam") != "adam")
      r.fail("muon_scalar_optimizer", "adam: others are not modelled here");
  } else if (name != "adam") {
    r.fail("optimizer", "adam, muon or dist_muon: other optimizers are not modelled here");
  }
  std::string gradients = "fp32";
  if (r.flag("use_precision_aware_optimizer")) {
    const auto type = [&](const char* name) {
      std::string value = r.text(name, "fp32");
      if (value.starts_with("torch.")) value.erase(0, 6);
      return value == "float32" ? "fp32" : value == "bfloat16" ? "bf16" : value == "float16" ? "fp16" : value;
    };
    const std::string types =
        type("main_params_dtype") + "," + type("exp_avg_dtype") + "," + type("exp_avg_sq_dtype");
    try {
      r.set("training.optimizer_dtypes", models::OptimizerTypes::parse(types).text());
    } catch (const InputError& error) {
      r.fail("use_precision_aware_optimizer", error.what());
    }
    gradients = type("main_grads_dtype");
  }
  // With bf16, Megatron accumulates gradients in fp32 unless they are reduced in bf16.
  const bool half = r.flag("grad_reduce_in_bf16") || gradients == "bf16" ||
                    !r.flag("grad_reduce_in_fp32", true) ||
                    !r.flag("accumulate_allreduce_grads_in_fp32", true);
  r.set("training.gradient_bytes", half ? 2 : 4);
  if (r.flag("optimizer_cpu_offload")) {
    if (r.number("optimizer_offload_fraction").value_or(1) != 1)
      r.fail("optimizer_offload_fraction", "1: a part of it is not modelled here");
    r.set("training.offload", "optimizer");
  }
}

void write_optimizer(const Scenario& s, Arguments& out) {
  const models::TrainingSettings& t = s.training;
  out.emplace_back("optimizer", t.muon ? "muon" : "adam");
  if (t.muon) out.emplace_back("muon_num_ns_steps", t.newton_schulz_steps);
  if (t.optimizer != models::OptimizerTypes{} || models::offloads_optimizer(t.offload))
    out.emplace_back("use_precision_aware_optimizer", true);
  if (t.optimizer != models::OptimizerTypes{}) {
    const std::string text = t.optimizer.text();
    const auto parts = split(text, ',');
    out.emplace_back("main_params_dtype", parts[0]);
    out.emplace_back("exp_avg_dtype", parts[1]);
    out.emplace_back("exp_avg_sq_dtype", parts[2]);
  }
  put_flag(out, t.gradient_bytes == 2, "grad_reduce_in_bf16");
  put_flag(out, t.gradient_bytes == 4, "accumulate_allreduce_grads_in_fp32");
  put_flag(out, models::offloads_optimizer(t.offload), "optimizer_cpu_offload");
}

void read_graphs(JobReader& r) {
  std::string how =
      r.choice("cuda_graph_impl", "none", {"none", "local", "transformer_engine", "full_iteration"});
  if (r.flag("external_cuda_graph")) how = "transformer_engine";
  if (r.flag("enable_cuda_graph")) how = "local";
  const std::vector<std::string> scope = r.list("cuda_graph_scope");
  r.list("cuda_graph_modules");
  if (how == "none") return;
  const bool whole = how == "full_iteration" || std::ranges::find(scope, "full_iteration") != scope.end();
  r.set("training.launch", whole ? "graphs" : "partial-graphs");
}

void write_graphs(const Scenario& s, Arguments& out) {
  if (s.training.launch == models::LaunchMode::kEager) return;
  const bool whole = s.training.launch == models::LaunchMode::kGraphs;
  out.emplace_back("cuda_graph_impl", whole ? "full_iteration" : "transformer_engine");
  out.emplace_back("te_rng_tracker", true);  // switched on with a warning otherwise
  if (whole)
    out.emplace_back("no_check_for_nan_in_loss_and_grad", true);
  else
    out.emplace_back("cuda_graph_modules",
                     s.model.experts > 0 ? ordered_json{"attn", "moe_router"} : ordered_json("attn"));
}

// Megatron-SWIFT's adapters (swift/megatron/argument/megatron_base_args.py): all-linear are those of attention, dense
// FFNs, shared and routed experts.
void read_lora(JobReader& r) {
  const bool renamed = r.has("tuner_type");
  const bool some = r.choice(renamed ? "tuner_type" : "train_type", "full", {"full", "lora"}) == "lora";
  const std::int64_t rank = r.whole_or("lora_rank", 8);
  std::vector<std::string> modules = r.list("target_modules");
  if (!some) return;
  r.set("training.lora", rank);
  std::ranges::sort(modules);
  const bool all = modules.empty() || modules == std::vector<std::string>{"all-linear"};
  if (!all && modules != std::vector<std::string>{"linear_proj", "linear_qkv"})
    r.fail("target_modules",
           "all-linear, or linear_qkv and linear_proj: adapters of other weights are not modelled here");
  r.set("training.lora_modules", all ? "attention+ffn+experts" : "attention");
}

}  // namespace

std::vector<ArgumentRule> training_rules() {
  return {{{"recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
            "recompute_activations", "moe_layer_recompute"},
           read_recompute,
           write_recompute},
          {{"use_distributed_optimizer", "use_layer_wise_distributed_optimizer", "use_megatron_fsdp",
            "use_custom_fsdp", "data_parallel_sharding_strategy", "use_torch_fsdp2",
            "torch_fsdp2_reshard_after_forward", "torch_fsdp2_no_reshard_after_forward"},
           read_sharding,
           write_sharding},
          {{"overlap_grad_reduce", "overlap_param_gather", "overlap_moe_expert_parallel_comm",
            "delay_wgrad_compute"},
           read_overlap,
           write_overlap},
          {{"log_overload_factor"}, read_overload_log, write_overload_log},
          {{"optimizer", "muon_num_ns_steps", "muon_tp_mode", "muon_scalar_optimizer",
            "use_precision_aware_optimizer", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype",
            "main_grads_dtype", "grad_reduce_in_bf16", "grad_reduce_in_fp32",
            "accumulate_allreduce_grads_in_fp32", "optimizer_cpu_offload", "optimizer_offload_fraction"},
           read_optimizer,
           write_optimizer},
          {{"cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules", "enable_cuda_graph",
            "external_cuda_graph"},
           read_graphs,
           write_graphs},
          {{"train_type", "tuner_type", "lora_rank", "target_modules"}, read_lora, {}}};
}

}  // namespace moesim::tools::megatron
