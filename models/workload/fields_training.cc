// Fields of how a training step runs: framework, precision, schedule, launches, recomputation, overlap; where
// parameters and their state live; the optimizer.
#include <algorithm>
#include <array>

#include "models/hardware/cluster.h"
#include "models/recipes/framework_recipe.h"
#include "models/workload/field_makers.h"

namespace moesim::models::fields {

namespace {

using T = TrainingSettings;
constexpr auto kTraining = &Scenario::training;
// As PipelineKind; the last is an alias of 1f1b, which is interleaved where vpp > 1.
constexpr auto kSchedules = name_list("1f1b", "zero-bubble", "dualpipe", "interleaved");

constexpr const char* kScattersInPasses =
    "zero2 with parallel.pp {parallel.pp}, whose stages add up gradients; expected zero1";

// Conditions, by what holds.
using enum ShardingScheme;

bool trained(const Scenario& s) { return s.train; }
bool tensor_parallel(const Scenario& s) { return s.parallel.tp > 1; }
bool pipelined(const Scenario& s) { return s.parallel.pp > 1; }
bool has_experts(const Scenario& s) { return s.model.experts > 0; }
bool has_replicas(const Scenario& s) { return s.parallel.data_ranks() > 1 || s.parallel.edp() > 1; }
bool with_shampoo(const Scenario& s) { return s.training.shampoo; }
bool with_muon(const Scenario& s) { return s.training.muon; }
bool without_shampoo(const Scenario& s) { return !s.training.shampoo; }
bool without_muon(const Scenario& s) { return !s.training.muon; }
bool sharded_alike(const Scenario& s) { return !s.training.router_sharding && !s.training.expert_sharding; }

// FSDP and HSDP divide weights; under the others they are whole.
bool divided(const Scenario& s) { return shards_weights(s.training.sharding); }

template <std::optional<ShardingScheme> T::*Module>
ShardingScheme scheme_of(const Scenario& s) {
  return (s.training.*Module).value_or(s.training.sharding);
}

constexpr Condition kTrained{trained, "{} without training; expected it with training"};
constexpr Condition kOnlyTrained{trained, "{} without training, expected it with training"};
constexpr Condition kExperts{has_experts,
                             "{} with model {model}, which has no experts; expected a model with experts"};
constexpr Condition kShardedAlike{sharded_alike,
                                  "{} with modules that are sharded apart, expected training.sharding alone"};
constexpr Condition kShampoo{with_shampoo, "without training.shampoo, expected both"};

// A part of the model that --recompute names.
template <bool StepRecompute::*Part, bool (*There)(const Architecture&)>
bool recomputes(const Scenario& s) {
  return !(s.training.recompute.*Part) || There(s.model);
}

bool has_latent(const Architecture& m) {
  return m.attention.kind == Attention::Kind::kLatent || m.attention.q_rank > 0;
}
bool has_shared(const Architecture& m) { return m.shared_ffn > 0; }
bool has_dense(const Architecture& m) { return m.has_dense_ffn(); }
bool has_streams(const Architecture& m) { return m.residual.kind == Residual::Kind::kHyper; }
bool routes(const Architecture& m) { return m.experts > 0; }

// Whether passes lie beside each other, whose communication weight gradients can fill.
bool has_passes_beside(const Scenario& s) {
  return (s.training.overlap.expert_communication && s.parallel.dispatch_ranks() > 1 && has_experts(s)) ||
         s.training.pipeline == PipelineKind::kDualPipe ||
         std::ranges::any_of(s.dispatchers,
                             [](const DispatcherSpec& d) { return d.options.contains("batch_overlap"); });
}

bool gathers_parameters(const Scenario& s) {
  return !s.train || !has_replicas(s) || s.training.shampoo || s.training.muon ||
         s.training.sharding != kDdp || scheme_of<&T::router_sharding>(s) != kDdp ||
         scheme_of<&T::expert_sharding>(s) != kDdp;
}

bool sends_to_replicas(const Scenario& s) { return !s.train || has_replicas(s); }

// A forward pass alone gathers divided weights, and keeps whole ones as they are.
template <std::optional<ShardingScheme> T::*Module>
bool module_gathers(const Scenario& s) {
  return s.train || s.mesh.given || divided(s) || shards_weights(scheme_of<Module>(s));
}

template <bool StepOverlap::*Part>
Field overlap(std::string_view path, std::string_view help, Field more) {
  return boolean<kTraining, &T::overlap, Part>(path, "", kStep, help, std::move(more));
}

// Sharding of a module that is wrapped separately; by default as the rest.
template <std::optional<ShardingScheme> T::*Module>
Field module_sharding(std::string_view path, std::string_view help) {
  return field<kTraining, Module>(
      FieldType::kChoice, path, "", kPlan, help,
      {.choices = kNamesOf<ShardingScheme>,
       .fallback = "as training.sharding",
       .used_if = {{module_gathers<Module>, kTrained.words}, kExperts},
       .valid_if = {{[](const Scenario& s) {
                       return s.training.*Module != kHsdp || s.training.sharding == kHsdp;
                     },
                     "hsdp with {training.sharding}, expected it with hsdp:shard=N for the rest, too"},
                    {[](const Scenario& s) { return s.training.*Module != kZero2 || !pipelined(s); },
                     kScattersInPasses}},
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.*Module = ShardingSpec::parse(v.string()).scheme; },
       .value =
           [](const Field&, const Scenario& s) {
             return s.training.*Module ? ordered_json(name_of(*(s.training.*Module))) : ordered_json();
           }});
}

// The text also gives the other fields of sharding that it contains.
void read_sharding(const Field&, Scenario& s, const JsonNode& value) {
  s.training.set_sharding(value.string());
  if (s.training.shard_group > 0) s.give("training.shard_group");
  if (!s.training.reshard_after_forward) s.give("training.reshard_after_forward");
  if (s.training.shampoo) s.give("training.shampoo");
  if (s.training.muon) s.give("training.muon");
}

void take_precision(Scenario& to, const Scenario& from) {
  to.training.precision = from.training.precision;
  to.training.gemm = from.training.gemm;
  to.training.note = from.training.note;
}

// The host's memory of offloaded state, and its link.
bool has_host(const Scenario& s) {
  if (!s.cluster) return true;
  const DeviceLimits& device = s.cluster->profile.device();
  return device.host_link > 0 && (device.host_memory > 0 || !offloads_optimizer(s.training.offload));
}

// FSDP's own offload also keeps the weights on the host and gathers them from there.
template <std::optional<ShardingScheme> T::*Module>
bool offloads_whole(const Scenario& s) {
  return !offloads_optimizer(s.training.offload) || !shards_weights(scheme_of<Module>(s));
}

}  // namespace

std::string words_of(std::string_view path) {
  constexpr std::string_view kOf = "training.";
  if (path.starts_with(kOf)) path.remove_prefix(kOf.size());
  std::string words(path);
  std::ranges::replace_if(
      words, [](char c) { return c == '.' || c == '_'; }, ' ');
  return words;
}

std::vector<Field> step_fields() {
  return {
      text<kTraining, &T::recompute>(
          "training.recompute", "--recompute", kPlan,
          "Activations that backward computes again: none, full, or core_attn, layernorm, mhc, "
          "mla_up_proj, mlp, moe, moe_act, shared_experts joined with +; op: torchtitan's selective of operations",
          {.also = "recompute",
           .fallback = "none",
           .used_if = {kTrained},
           .valid_if =
               {{[](const Scenario& s) { return s.is_step() || !s.training.recompute.dense; },
                 "mlp with scope layer, which has no dense FFN; scope step has"},
                {recomputes<&StepRecompute::latent, has_latent>,
                 "mla_up_proj with model {model}, which has no latent projections; expected a part of it"},
                {recomputes<&StepRecompute::shared, has_shared>,
                 "shared_experts with model {model}, which has no shared experts; expected a part of it"},
                {recomputes<&StepRecompute::dense, has_dense>,
                 "mlp with model {model}, which has no dense FFN; expected a part of it"},
                {recomputes<&StepRecompute::streams, has_streams>,
                 "mhc with model {model}, which has no hyper-connections; expected a part of it"},
                {recomputes<&StepRecompute::moe, routes>,
                 "moe with model {model}, which has no experts; expected a part of it"},
                {recomputes<&StepRecompute::activation, routes>,
                 "moe_act with model {model}, which has no experts; expected a part of it"}}}),
      field<&Scenario::recipe>(
          FieldType::kText, "recipe", "--recipe", kPlan,
          "Training framework whose defaults fill what is not said: NAME[@VERSION] of `moesim list recipes`",
          {.fallback = "none",
           .read = [](const Field&, Scenario& s,
                      const JsonNode& v) { s.recipe = FrameworkRecipe::find(v.string()).id(); },
           .written = changed}),
      enum_field<kTraining, &T::framework>(
          "training.framework", "--framework", kPlan,
          "Framework that launches the kernels: megatron-recipe is tuned, megatron-stock is not, megatron "
          "may be either; none: kernels run alone, as in a micro-benchmark",
          {.valid_if = {{[](const Scenario& s) {
                           return s.training.framework != Framework::kNone ||
                                  (s.training.gemm == DType::kBf16 && !s.training.fused_kernels &&
                                   s.training.launch == LaunchMode::kEager);
                         },
                         "none with a precision, fused kernels or a launch mode, which are a framework's; "
                         "expected one of them"}}}),
      field<kTraining, &T::precision>(
          FieldType::kChoice, "training.precision", "--precision", kPlan,
          "Precision of the products with weights",
          {.choices = kPrecisions,
           .fallback = "bf16",
           .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_precision(v.string()); },
           .take = take_precision}),
      choice<kTraining, &T::pipeline>(
          kSchedules, "training.schedule", "--schedule", kPlan,
          "Pipeline schedule; 1f1b is interleaved with --vpp",
          {.used_if = {{[](const Scenario& s) {
                          return s.training.pipeline != PipelineKind::kZeroBubble || s.is_step() ||
                                 pipelined(s) || !s.train;
                        },
                        "{} with scope layer and pp 1, which has no bubble; expected pp > 1", "parallel.pp"},
                       {[](const Scenario& s) {
                          return s.training.pipeline != PipelineKind::kZeroBubble || s.train;
                        },
                        kTrained.words}},
           .read =
               [](const Field& f, Scenario& s, const JsonNode& v) {
                 const std::size_t word = index_named("schedule", v.string(), f.choices);
                 s.training.pipeline =
                     f.choices[word] == "interleaved" ? PipelineKind::k1F1B : static_cast<PipelineKind>(word);
               }}),
      enum_field<kTraining, &T::launch>("training.launch", "--launch", kPlan,
                                        "Launching of kernels: by the host, or by CUDA graphs"),
      enum_field<kTraining, &T::overload, &OverloadLog::report>(
          "training.overload.report", "--overload-report", kStep,
          "All-reduces that log a step's overload factors",
          {.used_if = {kTrained, kExperts}, .written = changed}),
      enum_field<kTraining, &T::overload, &OverloadLog::recorder>(
          "training.overload.recorder", "--overload-recorder", kStep,
          "Treatment of the overload log in steps that CUDA graphs replay",
          {.valid_if = {{[](const Scenario& s) { return s.training.launch == LaunchMode::kGraphs; },
                         "{} with launch {training.launch}, expected graphs: without them every step is "
                         "recorded"}},
           .said_default = true,
           .written = changed}),
      boolean<kTraining, &T::overload, &OverloadLog::allgather_quirk>(
          "training.overload.allgather_quirk", "--overload-allgather-quirk", kPlan,
          "The overload log of AllGather divides by the balanced count once more",
          {.valid_if = {{[](const Scenario& s) {
                           return std::ranges::any_of(s.dispatchers, [](const DispatcherSpec& d) {
                             return d.name.starts_with("allgather") || d.name == "all";
                           });
                         },
                         "no allgather dispatcher, expected one: only its log differs"}},
           .written = changed}),
      field<kTraining, &T::overlap>(
          FieldType::kText, "training.overlap", "--overlap", kStep,
          "Communication that overlaps with compute: none, or expert-communication, delayed-wgrad, "
          "gradients, parameters joined with +",
          {.fallback = "gradients+parameters",
           .read = [](const Field&, Scenario& s,
                      const JsonNode& v) { s.training.overlap = StepOverlap::parse(v.string()); },
           .written = never}),
      overlap<&StepOverlap::expert_communication>(
          "training.overlap.expert_communication",
          "Dispatch and combine run under the other microbatch (or DualPipe's other half)",
          {.used_if = {{[](const Scenario& s) { return !has_experts(s) || s.parallel.dispatch_ranks() > 1; },
                        "{} with etp {parallel.etp} x ep {parallel.ep}, which send nothing; expected ep > 1",
                        "parallel.ep"},
                       kTrained,
                       kExperts}}),
      overlap<&StepOverlap::gradients>(
          "training.overlap.gradients", "Gradients are reduced under the last backward",
          {.used_if = {{sends_to_replicas, "{} with one replica, which sends neither; expected dp > 1",
                        "parallel.dp"},
                       kTrained},
           .said_itself = true}),
      overlap<&StepOverlap::parameters>(
          "training.overlap.parameters", "Parameters are gathered under the first forward",
          {.used_if = {{sends_to_replicas, "{} with one replica, which sends neither; expected dp > 1",
                        "parallel.dp"},
                       {gathers_parameters,
                        "{} with ddp, which gathers no parameters; expected zero1, fsdp or hsdp"},
                       kTrained},
           .said_itself = true}),
      overlap<&StepOverlap::delayed_wgrad>(
          "training.overlap.delayed_wgrad",
          "Weight gradients fill the idle time of overlapped expert communication",
          {.used_if =
               {{has_passes_beside,
                 "{} without passes beside each other; expected training.overlap.expert_communication, "
                 "schedule dualpipe or a dispatcher with batch_overlap"},
                kTrained}}),
      boolean<kTraining, &T::fp8_attention>("training.fp8_attention", "", kPlan,
                                            "The projections of attention run in fp8, too"),
      enum_field<kTraining, &T::activations>(
          "training.activations", "", kPlan,
          "Format of what backward needs: fp8 keeps inputs of SwiGLU in it and attention's output in 12 bits",
          {.used_if = {kTrained},
           .valid_if =
               {{[](const Scenario& s) {
                   return s.training.activations == ActivationFormat::kBf16 ||
                          (s.training.gemm != DType::kBf16 && s.training.recompute.activation);
                 },
                 "{} with recompute {training.recompute}, expected precision fp8 and recompute moe_act: "
                 "SwiGLU is computed again"}},
           .written = changed}),
      enum_field<kTraining, &T::attention>(
          "training.attention", "--attention", kPlan,
          "Kernel of the attention core: flash, or scores written and read again (unfused), also with "
          "dropout on them (unfused-dropout)",
          {.written = changed}),
      boolean<kTraining, &T::sequence_parallel>(
          "training.sequence_parallel", "--no-sequence-parallel", kPlanOfStep,
          "Tensor-parallel ranks share the rows of norms and residuals; false: each rank holds all rows",
          {.used_if = {{tensor_parallel, "{} with tp 1, whose ranks hold all rows; expected tp > 1",
                        "parallel.tp"}},
           .written = changed}),
      boolean<kTraining, &T::fused_kernels>(
          "training.fused_kernels", "", kPlan,
          "Activation, conversion and permutation run inside the products' kernels",
          {.used_if = {{[](const Scenario& s) { return has_experts(s) || s.training.gemm != DType::kBf16; },
                        "{} with model {model}, which has no experts, in bf16; expected experts, or a "
                        "precision whose conversions it fuses"}}}),
      integer<kTraining, &T::gradient_bytes>("training.gradient_bytes", "--gradient-bytes", kStep,
                                             "Size of an element of accumulated gradients",
                                             {.low = 2, .high = 4, .unit = "bytes", .used_if = {kTrained}}),
      text<kTraining, &T::optimizer>(
          "training.optimizer_dtypes", "--optimizer-dtypes", kPlan,
          "Data types of master weights, first and second moment: fp32, bf16, fp16 or fp8 each",
          {.fallback = "fp32,fp32,fp32", .used_if = {kTrained}}),
      enum_field<kTraining, &T::offload>(
          "training.offload", "--offload", kStep,
          "State that lives in the host's memory: master weights and moments, updated there (optimizer), "
          "activations that layers keep for backward (activations), both, or none",
          {.valid_if =
               {{trained, "{} without training, expected none"},
                {has_host,
                 "{} with profile {profile}, which states no host_link or no host_memory, expected them in its "
                 "device"},
                {[](const Scenario& s) { return !offloads_optimizer(s.training.offload) || without_muon(s); },
                 "{} with muon, expected Adam"},
                {[](const Scenario& s) {
                   return !offloads_optimizer(s.training.offload) || without_shampoo(s);
                 },
                 "{} with shampoo, expected Adam"},
                {[](const Scenario& s) { return !offloads_optimizer(s.training.offload) || !divided(s); },
                 "{} with {training.sharding}, expected ddp or zero1"},
                {offloads_whole<&T::router_sharding>,
                 "{} with {training.router_sharding}, expected ddp or zero1"},
                {offloads_whole<&T::expert_sharding>,
                 "{} with {training.expert_sharding}, expected ddp or zero1"},
                {[](const Scenario& s) {
                   return !offloads_activations(s.training.offload) || !s.training.recompute.full;
                 },
                 "{} with recompute full, expected activations that are kept"}}}),
      field<kTraining, &T::unfolded>(
          FieldType::kBoolean, "training.folding", "", kPlan,
          "Parallel folding: EP and ETP lie over TP x CP x DP; false: EP lies inside DP, and ETP = TP",
          {.fallback = "true",
           .used_if =
               {{[](const Scenario& s) { return s.parallel.mesh_ep <= 1; },
                 "{} with a mesh, which places its ep axis itself; expected no mesh"},
                {[](const Scenario& s) { return s.parallel.ep != 1; },
                 "{} with ep {parallel.ep} and cp {parallel.cp}, which place experts alike with and without "
                 "it; expected both above 1",
                 "parallel.ep"},
                {[](const Scenario& s) { return s.parallel.cp != 1; },
                 "{} with ep {parallel.ep} and cp {parallel.cp}, which place experts alike with and without "
                 "it; expected both above 1",
                 "parallel.cp"},
                {[](const Scenario& s) { return s.parallel.etp == s.parallel.tp; },
                 "{} with etp {parallel.etp} and tp {parallel.tp}; expected the same: without folding, "
                 "experts are split like the dense part",
                 "parallel.tp"},
                {[](const Scenario& s) { return s.parallel.dp % s.parallel.ep == 0; },
                 "{} with dp {parallel.dp} and ep {parallel.ep}; expected a multiple of ep: without folding, "
                 "EP lies inside DP",
                 "parallel.ep"}},
           .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.unfolded = !v.boolean(); },
           .value = [](const Field&, const Scenario& s) { return ordered_json(!s.training.unfolded); }}),
      choice<kTraining, &T::stages_inside>(
          kRankOrders, "training.rank_order", "--rank-order", kStep,
          "Megatron's order of the parallel axes, the fastest first",
          {.used_if = {{pipelined, "{} with pp 1, which has no other order; expected pp > 1", "parallel.pp"}},
           .written = changed}),
  };
}

std::vector<Field> sharding_fields() {
  return {
      field<kTraining, &T::sharding>(
          FieldType::kText, "training.sharding", "--sharding", kPlan,
          "Sharding of parameters, gradients and optimizer state: ddp, zero1, zero2, fsdp or "
          "hsdp:shard=N[:reshard=false][:shampoo][:muon]",
          {.also = "sharding",
           .fallback = "zero1",
           .used_if = {{[](const Scenario& s) {
                          return s.train || s.mesh.given || s.training.sharding != kDdp;
                        },
                        kTrained.words}},
           .valid_if = {{[](const Scenario& s) {
                           return s.is_step() || s.training.sharding != kHsdp || s.training.shard_group > 0;
                         },
                         "hsdp, expected hsdp:shard=N, the ranks that shard"},
                        {[](const Scenario& s) { return s.training.sharding != kZero2 || !pipelined(s); },
                         kScattersInPasses}},
           .read = read_sharding,
           .value = [](const Field&,
                       const Scenario& s) { return ordered_json(name_of(s.training.sharding)); },
           // Without a given sharding, scope layer lists no collectives of a step.
           .written = [](const Field&, const Scenario& s) { return s.sharding_asked() || s.is_step(); }}),
      integer<kTraining, &T::shard_group>(
          "training.shard_group", "", kPlan, "HSDP: size of a shard group; 0: one node",
          {.low = 0,
           .unit = "ranks",
           .valid_if = {{[](const Scenario& s) { return s.training.sharding == kHsdp; },
                         "{} with {training.sharding}, expected it with hsdp"}},
           .written = changed}),
      boolean<kTraining, &T::reshard_after_forward>(
          "training.reshard_after_forward", "", kPlan,
          "FSDP and HSDP gather parameters again in backward; the stages of a pipeline never do",
          {.valid_if = {{[](const Scenario& s) { return s.training.reshard_after_forward || divided(s); },
                         "false with {training.sharding}, expected it with fsdp or hsdp"},
                        {[](const Scenario& s) { return !s.training.reshard_after_forward || !pipelined(s); },
                         "true with parallel.pp {parallel.pp}, whose stages stay gathered for all "
                         "microbatches; expected false, or pp 1"}},
           .said_default = true,
           // A recipe may set false, beside which the given value stays.
           .written = [](const Field& f, const Scenario& s) { return changed(f, s) || s.gave(f.path); }}),
      enum_field<kTraining, &T::fsdp_unit>(
          "training.fsdp_unit", "--fsdp-unit", kPlan,
          "Unit that fsdp and hsdp gather at once: attention and FFN separately (module), a layer with all "
          "that is in it (block), the experts first and then the rest of a layer (experts), or the whole "
          "model (root); auto: a layer, its experts separately where they have data-parallel ranks of their "
          "own",
          {.valid_if = {{[](const Scenario& s) {
                           return divided(s) || shards_weights(scheme_of<&T::expert_sharding>(s));
                         },
                         "{} with {training.sharding}, expected it with fsdp or hsdp"}}}),
      module_sharding<&T::router_sharding>("training.router_sharding",
                                           "Sharding of the router, where it is wrapped separately"),
      module_sharding<&T::expert_sharding>("training.expert_sharding",
                                           "Sharding of the experts, where they are wrapped separately"),
      boolean<kTraining, &T::foreach>(
          "training.foreach", "", kStep,
          "The optimizer updates the tensors of a mesh in one kernel; false: each in its own",
          {.used_if = {kTrained}}),
      enum_field<kTraining, &T::loss>(
          "training.loss", "", kPlanOfStep,
          "Memory of the loss: logits in bf16 (fused), also in fp32 (fp32), as PyTorch's cross entropy keeps "
          "them (eager), or of a few tokens at a time (chunked)",
          {.used_if = {kTrained}, .written = changed}),
      boolean<kTraining, &T::loss_parallel>(
          "training.loss_parallel", "", kStep,
          "Logits stay divided over TP; false: they are gathered, and every rank computes the loss",
          {.used_if = {{tensor_parallel, "{} with tp 1, which divides no logits; expected tp > 1",
                        "parallel.tp"}}}),
      integer<kTraining, &T::preconditioning, &Shampoo::frequency>(
          "training.precondition_frequency", "", kStep,
          "Shampoo: interval between two computations of the preconditioners' roots",
          {.unit = "steps", .valid_if = {kShampoo}}),
      integer<kTraining, &T::preconditioning, &Shampoo::start>(
          "training.start_preconditioning_step", "", kStep,
          "Shampoo with shampoo_step: first step with preconditioners; grafted Adam before it",
          {.low = 0,
           .unit = "steps",
           .fallback = "precondition_frequency",
           .valid_if = {kShampoo,
                        {[](const Scenario& s) { return s.training.preconditioning.step > 0; },
                         "without training.shampoo_step: the mean of a period lies after the start; expected "
                         "both"}},
           .written = changed}),
      integer<kTraining, &T::preconditioning, &Shampoo::step>(
          "training.shampoo_step", "", kStep, "Shampoo: the step to forecast",
          {.low = 0, .fallback = "the mean of a period", .valid_if = {kShampoo}, .written = changed}),
      boolean<kTraining, &T::shampoo>(
          "training.shampoo", "", kPlan, "Distributed Shampoo instead of Adam",
          {.valid_if = {kOnlyTrained,
                        {[](const Scenario& s) {
                           return s.training.sharding != kZero1 && s.training.sharding != kZero2;
                         },
                         "{} with {training.sharding}, expected it with ddp, fsdp or hsdp"}},
           .written = changed}),
      boolean<kTraining, &T::muon>("training.muon", "", kPlanOfStep,
                                   "Muon for the layers' matrices instead of Adam",
                                   {.valid_if = {kOnlyTrained,
                                                 {without_shampoo, "{} with shampoo, expected one of them"},
                                                 kShardedAlike},
                                    .written = changed}),
      integer<kTraining, &T::newton_schulz_steps>(
          "training.newton_schulz_steps", "", kStep, "Muon: steps that orthogonalise a matrix's momentum",
          {.valid_if = {{with_muon, "it without training.muon, expected both"}},
           .written = [](const Field&, const Scenario& s) { return with_muon(s); }}),
      integer<kTraining, &T::lora, &Lora::rank>(
          "training.lora", "--lora", kPlanOfStep,
          "Rank of low-rank adapters, which alone are trained; all other weights are frozen",
          {.low = 0,
           .fallback = "all weights are trained",
           .valid_if = {kOnlyTrained,
                        {without_muon, "{} with muon, expected Adam"},
                        {without_shampoo, "{} with shampoo, expected Adam"},
                        kShardedAlike,
                        {[](const Scenario& s) { return !s.placement.given(); },
                         "{} with a placement of experts, whose copies sum gradients, expected experts as "
                         "they are"}},
           .written = changed}),
      enum_field<kTraining, &T::lora, &Lora::modules>(
          "training.lora_modules", "", kPlanOfStep,
          "LoRA: weights that have adapters; ffn: those of dense layers and shared experts; experts: the "
          "routed ones",
          {.valid_if = {{[](const Scenario& s) { return s.training.lora.rank > 0; },
                         "{} without training.lora, expected both"},
                        {[](const Scenario& s) {
                           return s.training.lora.modules != Lora::Modules::kDense || has_shared(s.model) ||
                                  has_dense(s.model);
                         },
                         "{} with model {model}, which has neither dense FFN nor shared expert, expected "
                         "attention"},
                        {[](const Scenario& s) {
                           return s.training.lora.modules != Lora::Modules::kExperts || has_experts(s);
                         },
                         "{} with model {model}, which has no experts, expected attention+ffn"}},
           .said_default = true,
           .written = [](const Field&, const Scenario& s) { return s.training.lora.rank > 0; }}),
  };
}

}  // namespace moesim::models::fields
