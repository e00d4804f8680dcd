#include "calibration/training/training_recipes.h"

#include <array>
#include <charconv>
#include <cstdlib>

namespace moesim::calibration {

namespace {

using models::LaunchMode;
using models::OptimizerTypes;
using models::StepRecompute;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Megatron-Bridge's performance presets: scripts/performance/configs/*/..._workload_base_configs.py of
// NVIDIA-NeMo/Megatron-Bridge (moe_flex_dispatcher_backend, recompute_modules, cuda_graph_impl and _scope,
// moe_a2a_overlap, fp8_dot_product_attention). Full-iteration graphs came with release 26.06. First match
// wins.
struct Preset {
  std::string_view model, gpu, precision;  // prefixes; precision "" for any
  double from;                             // release, e.g. 26.06
  std::string_view dispatcher;
  LaunchMode launch;
  std::string_view recompute;
  bool overlap, fp8_attention;
};
constexpr LaunchMode kEager = LaunchMode::kEager, kPartial = LaunchMode::kPartialGraphs,
                     kFull = LaunchMode::kGraphs;
constexpr std::array<Preset, 25> kPresets{{
    {"deepseek-v3", "GB300", "MXFP8", 26.06, "flex-hybridep", kFull, "none", true, true},
    {"deepseek-v3", "GB300", "", 0, "flex-hybridep", kEager, "mla_up_proj", false, false},
    {"deepseek-v3", "GB200", "MXFP8", 26.06, "flex-hybridep", kFull, "mla_up_proj", true, false},
    {"deepseek-v3", "GB200", "", 0, "flex-hybridep", kPartial, "mla_up_proj", false, false},
    {"deepseek-v3", "B300", "MXFP8", 26.06, "flex-hybridep", kFull, "mla_up_proj", true, true},
    {"deepseek-v3", "B300", "", 0, "flex-hybridep", kPartial, "mla_up_proj", false, false},
    {"deepseek-v3", "B200", "", 0, "flex-hybridep", kEager, "mla_up_proj", false, false},
    {"deepseek-v3", "H100", "", 0, "flex-hybridep", kEager, "mla_up_proj+mlp", false, false},
    {"kimi-k2", "GB", "", 0, "flex-hybridep", kPartial, "mla_up_proj", false, false},
    {"kimi-k2", "", "", 0, "flex-hybridep", kEager, "mla_up_proj", false, false},
    {"gpt-oss-120b", "GB", "MXFP8", 26.06, "flex-hybridep", kFull, "none", true, true},
    {"gpt-oss-120b", "GB300", "", 0, "alltoall", kPartial, "none", false, false},
    {"gpt-oss-120b", "B300", "", 0, "flex-hybridep", kPartial, "none", false, false},
    {"gpt-oss-120b", "", "", 0, "alltoall", kEager, "layernorm+moe_act", false, false},
    // Not in the presets that were read; the release brought it to its other MXFP8 presets of these GPUs.
    {"qwen3-30b-a3b", "GB", "MXFP8", 26.06, "flex-hybridep", kFull, "none", false, false},
    {"qwen3-30b-a3b", "H100", "", 0, "flex-hybridep", kEager, "none", false, false},
    {"qwen3-30b-a3b", "", "", 0, "flex-hybridep", kPartial, "none", false, false},
    {"qwen3-235b-a22b", "GB", "", 0, "flex-hybridep", kPartial, "none", false, false},
    {"qwen3-235b-a22b", "H100", "", 0, "alltoall", kEager, "none", true, false},
    {"qwen3-235b-a22b", "", "", 0, "alltoall", kEager, "none", false, false},
    {"nemotron-3-nano", "H100", "FP8", 0, "flex-hybridep", kPartial, "moe+layernorm+core_attn", false, false},
    {"nemotron-3-nano", "", "", 0, "flex-hybridep", kPartial, "none", false, false},
    {"nemotron-3-super", "GB200", "", 0, "flex-hybridep", kPartial, "layernorm+core_attn+moe", false, false},
    {"nemotron-3-super", "B200", "", 0, "flex-hybridep", kEager, "moe_act+layernorm+core_attn", false, false},
    {"nemotron-3-super", "", "", 0, "flex-hybridep", kPartial, "none", false, false},
}};

double version_of(std::string_view framework) {
  const std::size_t digit = framework.find_first_of("0123456789");
  if (digit == std::string_view::npos) return 0;
  // "26.04.01" reads as 26.04: patches of a release count as the release.
  return std::strtod(std::string(framework.substr(digit, 5)).c_str(), nullptr);
}

}  // namespace

TrainingRecipe recipe_of(std::string_view framework, std::string_view note, std::string_view dispatcher,
                         std::string_view model, std::string_view gpu, std::string_view precision,
                         std::int64_t pp) {
  TrainingRecipe r;
  // "library recipe", functional runs of model cards, development containers: nobody tuned the host's side.
  if (has(framework, "library recipe") || has(framework, "model card") || has(framework, "eager"))
    r.plan.framework = models::Framework::kMegatronStock;
  else if (has(framework, "Megatron-Bridge") || has(framework, "Bridge 20") ||
           framework.starts_with("MCore") || has(framework, "MegaScale") || has(framework, "moe_recipes"))
    r.plan.framework = models::Framework::kMegatronRecipe;
  const bool cloud = has(framework, "DGX Cloud");
  if (has(framework, "Megatron-Bridge") || cloud) {
    r.dispatcher = "flex-hybridep";
    r.plan.launch = kPartial;
    r.source = "Megatron-Bridge defaults";
    const double version = cloud ? 0 : version_of(framework);
    for (const Preset& p : kPresets) {
      if (!model.starts_with(p.model) || !gpu.starts_with(p.gpu) || !precision.starts_with(p.precision) ||
          version + 1e-9 < p.from)
        continue;
      r.dispatcher = p.dispatcher;
      r.plan.launch = p.launch;
      r.plan.recompute = StepRecompute::parse(p.recompute);
      r.plan.overlap.expert_communication = p.overlap;
      r.plan.fp8_attention = p.fp8_attention;
      r.plan.fused_kernels = p.from >= 26.06;  // cutedsl_fused_grouped_mlp
      r.source = "Megatron-Bridge scripts/performance/configs";
      r.recompute_known = true;
      break;
    }
    // Every preset of a mixture of experts reduces gradients in bf16 (grad_reduce_in_fp32 = False), those of
    // DeepSeek-V3, Kimi K2 and Moonlight keep both moments in bf16 (src/megatron/bridge/recipes:
    // use_precision_aware_optimizer, exp_avg_dtype, exp_avg_sq_dtype).
    r.plan.gradient_bytes = 2;
    for (const std::string_view name : {"deepseek-v3", "kimi-k2", "moonlight"})
      if (model.starts_with(name)) r.plan.optimizer = OptimizerTypes::parse("fp32,bf16,bf16");
    // The preset of this release with pp 8 instead of 16 overlaps and uses DeepEP.
    if (model == "deepseek-v3" && gpu.starts_with("B200") && pp == 8) {
      r.dispatcher = "flex-deepep";
      r.plan.launch = kPartial;
      r.plan.recompute = StepRecompute::parse("mla_up_proj+mlp");
      r.plan.overlap.expert_communication = true;
    }
    return r;
  }
  if (has(framework, "torchtitan")) {
    r.dispatcher = "torchtitan-alltoall";
    r.plan.set_sharding("fsdp");
    r.source = "torchtitan: FSDP2 over the data-parallel ranks";
    return r;
  }
  if (has(framework, "MegaScale")) {
    // arXiv 2505.11432, sections 3 and 4: attention split along the sequence inside the node, experts over
    // the node, communication of dispatch and combine overlapped with computing, selective recomputation.
    r.dispatcher = "alltoall";
    r.plan.overlap.expert_communication = true;
    r.plan.recompute = StepRecompute::parse("layernorm+moe_act");
    r.cp_fills_node = true;
    r.overlaps_inside = true;
    r.recompute_known = true;
    r.source = "arXiv 2505.11432";
    return r;
  }
  if (has(dispatcher, "DeepEP")) r.dispatcher = "flex-deepep";
  if (has(dispatcher, "HybridEP")) r.dispatcher = "flex-hybridep";
  // Tokens of all tensor-parallel ranks. Permutation kernels are fused only where --moe-permute-fusion asks
  // for it.
  if (dispatcher == "TP") r.dispatcher = "allgather:permute_fusion=false";
  if (has(note, "recompute norm, act")) {
    r.plan.recompute = StepRecompute::parse("layernorm+moe_act");
    r.recompute_known = true;
  }
  if (has(note, "A2A overlap")) r.plan.overlap.expert_communication = true;
  if (framework.starts_with("FSDP")) r.plan.set_sharding("fsdp");
  if (framework == "FSDP" || framework == "FSDP+EP" || framework == "TP+EP+DP" || framework == "MCore") {
    // arXiv 2504.14960: before folding, the tensor parallelism of the experts is the attention's and expert
    // parallelism lies inside data parallelism.
    r.etp_is_tp = true;
    r.plan.unfolded = true;
    r.source = "arXiv 2504.14960";
  }
  if (framework.starts_with("MCore")) r.most_interleaved = true;
  if (has(framework, "TP8 in node")) r.etp_is_tp = true;
  return r;
}

}  // namespace moesim::calibration
