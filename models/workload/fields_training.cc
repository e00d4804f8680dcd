// Fields of how a training step runs: framework, precision, schedule, launches, recomputation, overlap.
#include "models/recipes/framework_recipe.h"
#include "models/workload/field_makers.h"

namespace moesim::models::fields {

namespace {

template <bool StepOverlap::*Part>
Field overlap(Field f) {
  f.scopes = Scopes::kStep;
  f.group = kStep;
  return boolean<&Scenario::training, &TrainingSettings::overlap, Part>(f);
}

void take_precision(Scenario& to, const Scenario& from) {
  to.training.precision = from.training.precision;
  to.training.gemm = from.training.gemm;
  to.training.note = from.training.note;
}

}  // namespace

std::vector<Field> step_fields() {
  using T = TrainingSettings;
  return {
      {.path = "training.recompute",
       .also = "recompute",
       .flag = "--recompute",
       .type = FieldType::kText,
       .fallback = "none",
       .group = kPlan,
       .help = "Activations that backward computes again: none, full, or core_attn, layernorm, mhc, "
               "mla_up_proj, mlp, moe, moe_act, shared_experts joined with +",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.recompute = StepRecompute::parse(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(s.training.recompute.text()); },
       .take = take_member<&Scenario::training, &T::recompute>},
      {.path = "recipe",
       .flag = "--recipe",
       .type = FieldType::kText,
       .fallback = "none",
       .group = kPlan,
       .help = "Training framework whose defaults fill what is not said: NAME[@VERSION] of `moesim list "
               "recipes`",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.recipe = FrameworkRecipe::find(v.string()).id(); },
       .write = [](const Scenario& s) { return s.recipe.empty() ? ordered_json() : ordered_json(s.recipe); },
       .take = take_member<&Scenario::recipe>},
      {.path = "training.framework",
       .flag = "--framework",
       .type = FieldType::kChoice,
       .choices = framework_names(),
       .fallback = "megatron",
       .group = kPlan,
       .help = "Framework that launches the kernels: megatron-recipe is tuned, megatron-stock is not, "
               "megatron may be either; none: kernels run alone, as in a micro-benchmark",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_framework(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.framework)); },
       .take = take_member<&Scenario::training, &T::framework>},
      {.path = "training.precision",
       .flag = "--precision",
       .type = FieldType::kChoice,
       .choices = precision_names(),
       .fallback = "bf16",
       .group = kPlan,
       .help = "Precision of the products with weights",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_precision(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(s.training.precision); },
       .take = take_precision},
      {.path = "training.schedule",
       .flag = "--schedule",
       .type = FieldType::kChoice,
       .choices = pipeline_names(),
       .fallback = "1f1b",
       .group = kPlan,
       .help = "Pipeline schedule; 1f1b is interleaved with --vpp",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_pipeline(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.pipeline)); },
       .take = take_member<&Scenario::training, &T::pipeline>},
      {.path = "training.launch",
       .flag = "--launch",
       .type = FieldType::kChoice,
       .choices = launch_names(),
       .fallback = "eager",
       .group = kPlan,
       .help = "Launching of kernels: by the host, or by CUDA graphs",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_launch(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.launch)); },
       .take = take_member<&Scenario::training, &T::launch>},
      {.path = "training.overload.report",
       .flag = "--overload-report",
       .type = FieldType::kChoice,
       .choices = overload_report_names(),
       .fallback = "none",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "All-reduces that log a step's overload factors",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.set_overload_report(v.string()); },
       .write =
           [](const Scenario& s) {
             const OverloadLog::Report report = s.training.overload.report;
             return report == OverloadLog::Report::kNone ? ordered_json() : ordered_json(name_of(report));
           },
       .take = take_member<&Scenario::training, &T::overload, &OverloadLog::report>},
      {.path = "training.overload.recorder",
       .flag = "--overload-recorder",
       .type = FieldType::kChoice,
       .choices = overload_recorder_names(),
       .fallback = "deferred-clear",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "Treatment of the overload log in steps that CUDA graphs replay",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.set_overload_recorder(v.string()); },
       .write =
           [](const Scenario& s) {
             const OverloadLog::Recorder recorder = s.training.overload.recorder;
             return recorder == OverloadLog::Recorder::kDeferredClear ? ordered_json()
                                                                      : ordered_json(name_of(recorder));
           },
       .take = take_member<&Scenario::training, &T::overload, &OverloadLog::recorder>},
      {.path = "training.overload.allgather_quirk",
       .flag = "--overload-allgather-quirk",
       .type = FieldType::kBoolean,
       .fallback = "false",
       .group = kPlan,
       .help = "The overload log of AllGather divides by the balanced count once more",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.overload.allgather_quirk = v.boolean(); },
       .write =
           [](const Scenario& s) {
             return s.training.overload.allgather_quirk ? ordered_json(true) : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::overload, &OverloadLog::allgather_quirk>},
  };
}

std::vector<Field> overlap_fields() {
  using T = TrainingSettings;
  return {
      {.path = "training.overlap",
       .flag = "--overlap",
       .type = FieldType::kText,
       .fallback = "gradients+parameters",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "Communication that overlaps with compute: none, or expert-communication, delayed-wgrad, "
               "gradients, parameters joined with +",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.overlap = StepOverlap::parse(v.string()); },
       .write = nothing,
       .take = take_member<&Scenario::training, &T::overlap>},
      overlap<&StepOverlap::expert_communication>(
          {.path = "training.overlap.expert_communication",
           .fallback = "false",
           .help = "Dispatch and combine run under the other microbatch (or DualPipe's other half)"}),
      overlap<&StepOverlap::gradients>({.path = "training.overlap.gradients",
                                        .fallback = "true",
                                        .help = "Gradients are reduced under the last backward"}),
      overlap<&StepOverlap::parameters>({.path = "training.overlap.parameters",
                                         .fallback = "true",
                                         .help = "Parameters are gathered under the first forward"}),
      overlap<&StepOverlap::delayed_wgrad>(
          {.path = "training.overlap.delayed_wgrad",
           .fallback = "false",
           .help = "Weight gradients fill the idle time of overlapped expert communication"}),
      boolean<&Scenario::training, &T::fp8_attention>(
          {.path = "training.fp8_attention",
           .fallback = "false",
           .group = kPlan,
           .help = "The projections of attention run in fp8, too"}),
      {.path = "training.attention",
       .flag = "--attention",
       .type = FieldType::kChoice,
       .choices = attention_names(),
       .fallback = "flash",
       .group = kPlan,
       .help = "Kernel of the attention core: flash, or scores written and read again (unfused), also "
               "with dropout on them (unfused-dropout)",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_attention(v.string()); },
       .write =
           [](const Scenario& s) {
             const AttentionKernel kernel = s.training.attention;
             return kernel == AttentionKernel::kFlash ? ordered_json() : ordered_json(name_of(kernel));
           },
       .take = take_member<&Scenario::training, &T::attention>},
      {.path = "training.sequence_parallel",
       .flag = "--no-sequence-parallel",
       .type = FieldType::kBoolean,
       .fallback = "true",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help = "Tensor-parallel ranks share the rows of norms and residuals; false: each rank holds all "
               "rows",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.sequence_parallel = v.boolean(); },
       .write =
           [](const Scenario& s) {
             return s.training.sequence_parallel ? ordered_json() : ordered_json(false);
           },
       .take = take_member<&Scenario::training, &T::sequence_parallel>},
      boolean<&Scenario::training, &T::fused_kernels>(
          {.path = "training.fused_kernels",
           .fallback = "false",
           .group = kPlan,
           .help = "Activation, conversion and permutation run inside the products' kernels"}),
      integer<&Scenario::training, &T::gradient_bytes>(
          {.path = "training.gradient_bytes",
           .flag = "--gradient-bytes",
           .low = 2,
           .high = 4,
           .unit = "bytes",
           .fallback = "4",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Size of an element of accumulated gradients"}),
      {.path = "training.optimizer_dtypes",
       .flag = "--optimizer-dtypes",
       .type = FieldType::kText,
       .fallback = "fp32,fp32,fp32",
       .group = kPlan,
       .help = "Data types of master weights, first and second moment: fp32, bf16, fp16 or fp8 each",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.optimizer = OptimizerTypes::parse(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(s.training.optimizer.text()); },
       .take = take_member<&Scenario::training, &T::optimizer>},
      {.path = "training.offload",
       .flag = "--offload",
       .type = FieldType::kChoice,
       .choices = offload_names(),
       .fallback = "none",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "State that lives in the host's memory: master weights and moments, updated there "
               "(optimizer), activations that layers keep for backward (activations), both, or none",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_offload(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.offload)); },
       .take = take_member<&Scenario::training, &T::offload>},
      {.path = "training.folding",
       .type = FieldType::kBoolean,
       .fallback = "true",
       .group = kPlan,
       .help = "Parallel folding: EP and ETP lie over TP x CP x DP; false: EP lies inside DP, and ETP = "
               "TP",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.unfolded = !v.boolean(); },
       .write = [](const Scenario& s) { return ordered_json(!s.training.unfolded); },
       .take = take_member<&Scenario::training, &T::unfolded>},
      {.path = "training.rank_order",
       .flag = "--rank-order",
       .type = FieldType::kChoice,
       .choices = rank_orders(),
       .fallback = "tp-cp-ep-dp-pp",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "Megatron's order of the parallel axes, the fastest first",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_rank_order(v.string()); },
       .write =
           [](const Scenario& s) {
             return s.training.stages_inside ? ordered_json(s.training.rank_order()) : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::stages_inside>},
  };
}

}  // namespace moesim::models::fields
