#include "models/workload/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/hardware/price_text.h"
#include "models/recipes/framework_recipe.h"
#include "models/workload/model_json.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

using nlohmann::ordered_json;

constexpr double kMaxSize = 2147483648.0;  // 2^31

constexpr std::array<std::string_view, 2> kScopes{"layer", "step"};
constexpr std::array<std::string_view, 4> kRouterTypes{"bf16", "fp16", "fp32", "fp64"};
constexpr std::array<std::string_view, 3> kActivationTypes{"bf16", "fp16", "fp32"};

constexpr std::string_view kModel = "Model", kPlan = "Plan", kRouting = "Routing", kMachine = "Machine",
                           kDispatcher = "Dispatcher", kStep = "Step", kQuestion = "Question",
                           kMoney = "Money";

// The member at the end of a chain of pointers: member<&Scenario::parallel, &Parallel::tp>(scenario).
template <auto First, auto... Rest, class Object>
auto& member(Object& object) {
  if constexpr (sizeof...(Rest) == 0)
    return object.*First;
  else
    return member<Rest...>(object.*First);
}

template <auto... Path>
void take_member(Scenario& to, const Scenario& from) {
  member<Path...>(to) = member<Path...>(from);
}

template <auto... Path>
Field integer(Field f) {
  f.type = FieldType::kInteger;
  f.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    auto& to = member<Path...>(s);
    to = static_cast<std::remove_reference_t<decltype(to)>>(
        value.integer(static_cast<std::int64_t>(field.low), static_cast<std::int64_t>(field.high)));
  };
  f.write = [](const Scenario& s) -> ordered_json { return member<Path...>(s); };
  f.take = take_member<Path...>;
  return f;
}

// An optional integer: 0 is none and is not written.
template <auto... Path>
Field optional_integer(Field f) {
  f = integer<Path...>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    return member<Path...>(s) > 0 ? ordered_json(member<Path...>(s)) : ordered_json();
  };
  return f;
}

// A size of the plan, at least 1.
template <std::int64_t Parallel::*Size>
Field size(Field f) {
  f.low = 1, f.high = kMaxSize;
  f.group = kPlan;
  return integer<&Scenario::parallel, Size>(f);
}

// Fills the cluster by default, and is not written until it has.
Field data_parallel(Field f) {
  f = size<&Parallel::dp>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    return s.resolved || s.gave("parallel.dp") ? ordered_json(s.parallel.dp) : ordered_json();
  };
  return f;
}

// Follows from a batch, and is not written until it has.
Field microbatches(Field f) {
  f = size<&Parallel::microbatches>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    const bool open = !s.resolved && !s.gave("parallel.microbatches") && s.batch.given();
    return open ? ordered_json() : ordered_json(s.parallel.microbatches);
  };
  return f;
}

template <auto... Path>
Field number(Field f) {
  f.type = FieldType::kNumber;
  f.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    member<Path...>(s) = value.number(field.low, field.high);
  };
  f.write = [](const Scenario& s) -> ordered_json { return member<Path...>(s); };
  f.take = take_member<Path...>;
  return f;
}

// An optional number: 0 is none and is not written.
template <auto... Path>
Field optional_number(Field f) {
  f = number<Path...>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    return member<Path...>(s) > 0 ? ordered_json(member<Path...>(s)) : ordered_json();
  };
  return f;
}

template <auto... Path>
Field boolean(Field f) {
  f.type = FieldType::kBoolean;
  f.read = [](const Field&, Scenario& s, const JsonNode& value) { member<Path...>(s) = value.boolean(); };
  f.write = [](const Scenario& s) -> ordered_json { return member<Path...>(s); };
  f.take = take_member<Path...>;
  return f;
}

constexpr std::array<std::string_view, 4> kSchemes{"ddp", "zero1", "fsdp", "hsdp"};

// Sharding of a module that is wrapped separately; by default as the rest.
template <std::optional<ShardingScheme> TrainingPlan::*Module>
Field module_sharding(Field f) {
  f.type = FieldType::kChoice;
  f.choices = kSchemes;
  f.fallback = "as training.sharding";
  f.group = kPlan;
  f.read = [](const Field&, Scenario& s, const JsonNode& v) {
    s.training.*Module = ShardingSpec::parse(v.string()).scheme;
  };
  f.write = [](const Scenario& s) {
    return s.training.*Module ? ordered_json(name_of(*(s.training.*Module))) : ordered_json();
  };
  f.take = take_member<&Scenario::training, Module>;
  return f;
}

template <bool StepOverlap::*Part>
Field overlap(Field f) {
  f.scopes = Scopes::kStep;
  f.group = kStep;
  return boolean<&Scenario::training, &TrainingPlan::overlap, Part>(f);
}

template <class Item>
constexpr const char* key_of() {
  return std::is_same_v<Item, Faults::SlowGpu> ? "factor" : "bandwidth";
}

// A list of GPUs with a number each, {"gpu": 3, "factor": 1.5}; low and high are bounds of that number.
template <class Item, std::vector<Item> Faults::*List, double Item::*Value>
Field per_gpu(Field f) {
  f.type = FieldType::kObject;
  f.group = kMachine;
  f.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    if (!value.is_array()) value.fail(value.describe(), "an array of objects");
    std::vector<Item>& list = s.faults.*List;
    list.clear();
    for (const JsonNode& item : value.items()) {
      JsonObject one(item);
      Item result;
      result.gpu = one.at("gpu").integer(0, static_cast<std::int64_t>(kMaxSize));
      result.*Value = one.at(key_of<Item>()).number(field.low, field.high);
      one.finish();
      list.push_back(result);
    }
  };
  f.write = [](const Scenario& s) -> ordered_json {
    ordered_json list;
    for (const Item& item : s.faults.*List)
      list.push_back({{"gpu", item.gpu}, {key_of<Item>(), item.*Value}});
    return list;
  };
  f.take = take_member<&Scenario::faults, List>;
  return f;
}

std::string beside(const JsonNode& value, const std::string& path) {
  return models::beside(value.place().file, path);
}

void read_model(const Field&, Scenario& s, const JsonNode& value) {
  if (!value.is_string()) {
    s.model = Architecture::parse(value);
    return;
  }
  const std::string name = value.string();
  const auto names = Architecture::names();
  s.set_model(std::find(names.begin(), names.end(), name) != names.end() ? name : beside(value, name));
}

ordered_json write_model(const Scenario& s) {
  return s.model.hidden == 0 ? ordered_json() : to_json(s.model);
}

void read_cluster(const Field&, Scenario& s, const JsonNode& value) {
  if (value.is_string() && is_file(beside(value, value.string())))
    s.set_cluster(beside(value, value.string()));
  else
    s.cluster = std::make_shared<const Cluster>(Cluster::load(value));
}

ordered_json write_cluster(const Scenario& s) { return s.cluster ? s.cluster->to_json() : ordered_json(); }

void read_dispatchers(const Field&, Scenario& s, const JsonNode& value) {
  if (value.is_string()) {
    s.set_dispatchers(value.string());
    if (value.place().line > 0)
      for (DispatcherSpec& spec : s.dispatchers) spec.origin = value.place().str();
    return;
  }
  s.dispatchers.clear();
  s.all_dispatchers = false;
  for (const JsonNode& item : value.is_array() ? value.items() : std::vector<JsonNode>{value})
    s.dispatchers.push_back(DispatcherSpec::parse(item));
  if (s.dispatchers.empty()) value.fail("an empty list", "at least one dispatcher");
}

ordered_json write_dispatchers(const Scenario& s) {
  if (s.all_dispatchers) return "all";
  ordered_json list = ordered_json::array();
  for (const DispatcherSpec& spec : s.dispatchers) list.push_back(spec.to_json());
  return list;
}

void take_dispatchers(Scenario& to, const Scenario& from) {
  to.dispatchers = from.dispatchers;
  to.all_dispatchers = from.all_dispatchers;
}

void read_routing(const Field&, Scenario& s, const JsonNode& value) {
  s.routing = RoutingSpec::parse(value);
  if (s.routing.kind == RoutingSpec::Kind::kFile) s.routing.path = beside(value, s.routing.path);
}

ordered_json write_routing(const Scenario& s) {
  if (s.routing.kind != RoutingSpec::Kind::kFile) return s.routing.text;
  // A text with a slash is a path, not a distribution.
  return s.routing.path.find('/') == std::string::npos ? "./" + s.routing.path : s.routing.path;
}

ordered_json write_placement(const Scenario& s) {
  if (!s.placement.given()) return {};
  return s.placement.expert_of.empty() ? ordered_json(s.placement.text) : ordered_json(s.placement.expert_of);
}

void read_scope(const Field&, Scenario& s, const JsonNode& value) {
  const std::string scope = value.string();
  if (scope != "layer" && scope != "step")
    throw InputError(fmt::format("scope: found {}, expected layer or step{}", in_quotes(scope),
                                 did_you_mean(scope, std::vector<std::string>{"layer", "step"})));
  s.scope = scope == "step" ? Scenario::Scope::kStep : Scenario::Scope::kLayer;
}

// JSON numbers end at 2^63 in JsonNode; a seed may be any 64 bits, and larger ones are texts.
void read_seed(const Field&, Scenario& s, const JsonNode& value) {
  if (!value.is_string()) {
    s.seed = static_cast<std::uint64_t>(value.integer(0));
    return;
  }
  const std::string text = value.string();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), s.seed);
  if (error != std::errc() || end != text.data() + text.size())
    value.fail(value.describe(), "a whole number from 0 to 2^64 - 1");
}

ordered_json write_seed(const Scenario& s) {
  constexpr auto kMostNumber = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return s.seed > kMostNumber ? ordered_json(std::to_string(s.seed)) : ordered_json(s.seed);
}

void read_faults(const Field& field, Scenario& s, const JsonNode& value) {
  set_field(field, s, JsonNode::read(beside(value, value.string())));
}

// The text also gives the other fields of sharding that it contains.
void read_sharding(const Field&, Scenario& s, const JsonNode& value) {
  s.training.set_sharding(value.string());
  if (s.training.shard_group > 0) s.give("training.shard_group");
  if (!s.training.reshard_after_forward) s.give("training.reshard_after_forward");
  if (s.training.shampoo) s.give("training.shampoo");
  if (s.training.muon) s.give("training.muon");
}

// Without a given sharding, scope layer lists no collectives of a step.
ordered_json write_sharding(const Scenario& s) {
  const bool said = s.sharding_asked() || s.scope == Scenario::Scope::kStep;
  return said ? ordered_json(name_of(s.training.sharding)) : ordered_json();
}

void take_precision(Scenario& to, const Scenario& from) {
  to.training.precision = from.training.precision;
  to.training.gemm = from.training.gemm;
  to.training.note = from.training.note;
}

ordered_json nothing(const Scenario&) { return {}; }

// The compared model, dispatchers and machine.
std::vector<Field> subject_fields() {
  return {
      {.path = "model",
       .flag = "--model",
       .type = FieldType::kObject,
       .group = kModel,
       .help = "Model: a name of `moesim list models`, or a JSON file",
       .read = read_model,
       .write = write_model,
       .take = take_member<&Scenario::model>},
      {.path = "cluster",
       .flag = "--cluster",
       .type = FieldType::kObject,
       .fallback = "the smallest dgx-h100xN",
       .group = kMachine,
       .help = "Cluster: a name of `moesim list clusters`, with its number of nodes or without (h100), or a "
               "JSON file",
       .read = read_cluster,
       .write = write_cluster,
       .take = take_member<&Scenario::cluster>},
      optional_integer<&Scenario::gpus>(
          {.path = "gpus",
           .flag = "--gpus",
           .low = 1,
           .high = kMaxSize,
           .fallback = "all of the cluster",
           .group = kMachine,
           .help = "GPUs of the job: so many nodes of a cluster that is named without a number of them, "
                   "--cluster h100"}),
      {.path = "dispatcher",
       .flag = "--dispatcher",
       .type = FieldType::kObject,
       .fallback = "allgather,alltoall",
       .group = kDispatcher,
       .help = "name[:key=value...],... or all",
       .read = read_dispatchers,
       .write = write_dispatchers,
       .take = take_dispatchers},
      {.path = "routing",
       .flag = "--routing",
       .type = FieldType::kObject,
       .fallback = "balanced",
       .group = kRouting,
       .help = "balanced, zipf:1.2, gini:0.3, ... or a dispatching file",
       .read = read_routing,
       .write = write_routing,
       .take = take_member<&Scenario::routing>},
      {.path = "router_dtype",
       .flag = "--router-dtype",
       .type = FieldType::kChoice,
       .choices = kRouterTypes,
       .fallback = "fp32",
       .group = kRouting,
       .help = "Numbers that the router works with",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.set_router_dtype(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.router_dtype)); },
       .take = take_member<&Scenario::router_dtype>},
      {.path = "activation_dtype",
       .flag = "--activation-dtype",
       .type = FieldType::kChoice,
       .choices = kActivationTypes,
       .fallback = "bf16",
       .scopes = Scopes::kLayer,
       .group = kModel,
       .help = "Rows and weights; other than bf16 with --framework none",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.set_activation(v.string()); },
       .write =
           [](const Scenario& s) {
             return s.activation == DType::kBf16 ? ordered_json() : ordered_json(name_of(s.activation));
           },
       .take = take_member<&Scenario::activation>},
  };
}

// Recomputation, and execution of the passes of a step.
std::vector<Field> step_fields() {
  using T = TrainingPlan;
  return {
      {.path = "training.recompute",
       .also = "recompute",
       .flag = "--recompute",
       .type = FieldType::kText,
       .fallback = "none",
       .group = kPlan,
       .help =
           "none, full, or core_attn, layernorm, mhc, mla_up_proj, mlp, moe, moe_act, shared_experts joined "
           "with +",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.recompute = StepRecompute::parse(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(s.training.recompute.text()); },
       .take = take_member<&Scenario::training, &T::recompute>},
      {.path = "recipe",
       .flag = "--recipe",
       .type = FieldType::kText,
       .fallback = "none",
       .group = kPlan,
       .help = "What a training framework does unless told: NAME[@VERSION] of `moesim list recipes`",
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
       .help = "Whose training loop launches the kernels: of megatron a tuned recipe, a stock set-up, or "
               "left open; "
               "none: they run alone, as in a micro-benchmark",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_framework(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.framework)); },
       .take = take_member<&Scenario::training, &T::framework>},
      {.path = "training.precision",
       .flag = "--precision",
       .type = FieldType::kChoice,
       .choices = precision_names(),
       .fallback = "bf16",
       .group = kPlan,
       .help = "Of the products with weights",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_precision(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(s.training.precision); },
       .take = take_precision},
      {.path = "training.schedule",
       .flag = "--schedule",
       .type = FieldType::kChoice,
       .choices = pipeline_names(),
       .fallback = "1f1b",
       .group = kPlan,
       .help = "Of the pipeline; 1f1b is interleaved with --vpp",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_pipeline(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.pipeline)); },
       .take = take_member<&Scenario::training, &T::pipeline>},
      {.path = "training.launch",
       .flag = "--launch",
       .type = FieldType::kChoice,
       .choices = launch_names(),
       .fallback = "eager",
       .group = kPlan,
       .help = "Who launches kernels: the host, or CUDA graphs",
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
       .help = "All-reduces with which a job logs its overload factors",
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
       .help = "What the log keeps of steps that CUDA graphs replay",
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
       .help = "Log of AllGather with the balanced count divided once more",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.overload.allgather_quirk = v.boolean(); },
       .write =
           [](const Scenario& s) {
             return s.training.overload.allgather_quirk ? ordered_json(true) : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::overload, &OverloadLog::allgather_quirk>},
  };
}

// Overlap within a step, and its accounting.
std::vector<Field> overlap_fields() {
  using T = TrainingPlan;
  return {
      {.path = "training.overlap",
       .flag = "--overlap",
       .type = FieldType::kText,
       .fallback = "gradients+parameters",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "none, or expert-communication, delayed-wgrad, gradients, parameters joined with +",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.overlap = StepOverlap::parse(v.string()); },
       .write = nothing,
       .take = take_member<&Scenario::training, &T::overlap>},
      overlap<&StepOverlap::expert_communication>(
          {.path = "training.overlap.expert_communication",
           .fallback = "false",
           .help = "Dispatch and combine under the other microbatch (or DualPipe's other half)"}),
      overlap<&StepOverlap::gradients>({.path = "training.overlap.gradients",
                                        .fallback = "true",
                                        .help = "Gradients travel under the last backward"}),
      overlap<&StepOverlap::parameters>({.path = "training.overlap.parameters",
                                         .fallback = "true",
                                         .help = "Parameters travel under the first forward"}),
      overlap<&StepOverlap::delayed_wgrad>(
          {.path = "training.overlap.delayed_wgrad",
           .fallback = "false",
           .help = "Weight gradients fill what expert communication leaves idle"}),
      boolean<&Scenario::training, &T::fp8_attention>({.path = "training.fp8_attention",
                                                       .fallback = "false",
                                                       .group = kPlan,
                                                       .help = "The projections of attention in fp8, too"}),
      {.path = "training.attention",
       .flag = "--attention",
       .type = FieldType::kChoice,
       .choices = attention_names(),
       .fallback = "flash",
       .group = kPlan,
       .help = "Core of attention: flash, or scores written and read again (unfused), with dropout of them "
               "(unfused-dropout)",
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
       .help = "Tensor-parallel ranks share the rows of norms and residuals",
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
           .help = "Activation, conversion and permutation inside the products' kernels"}),
      integer<&Scenario::training, &T::gradient_bytes>(
          {.path = "training.gradient_bytes",
           .flag = "--gradient-bytes",
           .low = 2,
           .high = 4,
           .unit = "bytes",
           .fallback = "4",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Of an element where gradients are added up"}),
      {.path = "training.optimizer_dtypes",
       .flag = "--optimizer-dtypes",
       .type = FieldType::kText,
       .fallback = "fp32,fp32,fp32",
       .group = kPlan,
       .help = "Master weights, first and second moment: fp32, bf16, fp16 or fp8 each",
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
       .help = "What lives in the host's memory: master weights and moments, updated there (optimizer), what "
               "layers keep for backward (activations), both, or nothing",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_offload(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.offload)); },
       .take = take_member<&Scenario::training, &T::offload>},
      {.path = "training.folding",
       .type = FieldType::kBoolean,
       .fallback = "true",
       .group = kPlan,
       .help = "EP and ETP lie over TP x CP x DP; false: EP inside DP, ETP = TP",
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
       .help = "Which ranks are neighbours, the fastest axis first (Megatron's order)",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_rank_order(v.string()); },
       .write =
           [](const Scenario& s) {
             return s.training.stages_inside ? ordered_json(s.training.rank_order()) : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::stages_inside>},
  };
}

// Placement of experts and parameters.
std::vector<Field> layout_fields() {
  using T = TrainingPlan;
  return {
      {.path = "scope",
       .flag = "--scope",
       .type = FieldType::kChoice,
       .choices = kScopes,
       .fallback = "layer",
       .group = kQuestion,
       .help = "One MoE layer, or a whole training step",
       .read = read_scope,
       .write = [](const Scenario& s) { return ordered_json(kScopes[static_cast<std::size_t>(s.scope)]); },
       .take = take_member<&Scenario::scope>},
      {.path = "placement",
       .flag = "--placement",
       .type = FieldType::kObject,
       .fallback = "in order",
       .group = kRouting,
       .help = "balanced[:slots=N]: experts dealt out by load, replicated to N slots",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.placement = PlacementSpec::parse(v); },
       .write = write_placement,
       .take = take_member<&Scenario::placement>},
      {.path = "training.sharding",
       .also = "sharding",
       .flag = "--sharding",
       .type = FieldType::kText,
       .fallback = "zero1",
       .group = kPlan,
       .help =
           "ddp, zero1, fsdp or hsdp:shard=N[:reshard=false][:shampoo][:muon]: collectives per step, memory",
       .read = read_sharding,
       .write = write_sharding,
       .take = take_member<&Scenario::training, &T::sharding>},
      optional_integer<&Scenario::training, &T::shard_group>(
          {.path = "training.shard_group",
           .low = 0,
           .high = kMaxSize,
           .unit = "ranks",
           .fallback = "0",
           .group = kPlan,
           .help = "Of hsdp: ranks that shard; 0: those of one node"}),
      {.path = "training.reshard_after_forward",
       .type = FieldType::kBoolean,
       .fallback = "true",
       .group = kPlan,
       .help = "Of fsdp and hsdp: parameters are gathered again in backward; a stage of a pipeline never is",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.training.reshard_after_forward = v.boolean(); },
       .write =
           [](const Scenario& s) {
             // A recipe may set false, beside which the given value stays.
             const bool usual = s.training.reshard_after_forward && !s.gave("training.reshard_after_forward");
             return usual ? ordered_json() : ordered_json(s.training.reshard_after_forward);
           },
       .take = take_member<&Scenario::training, &T::reshard_after_forward>},
      {.path = "training.fsdp_unit",
       .flag = "--fsdp-unit",
       .type = FieldType::kChoice,
       .choices = fsdp_unit_names(),
       .fallback = "auto",
       .group = kPlan,
       .help =
           "What fsdp and hsdp gather at once: attention and FFN apart (module), a layer with all that is "
           "in it (block), the experts first and then the rest of a layer (experts), or the whole model "
           "(root); auto: a layer, its experts apart where they have data-parallel ranks of their own",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_fsdp_unit(v.string()); },
       .write = [](const Scenario& s) { return ordered_json(name_of(s.training.fsdp_unit)); },
       .take = take_member<&Scenario::training, &T::fsdp_unit>},
      module_sharding<&T::router_sharding>(
          {.path = "training.router_sharding",
           .help = "Of the router, where it is wrapped apart from the rest"}),
      module_sharding<&T::expert_sharding>(
          {.path = "training.expert_sharding", .help = "Of the experts, where they are wrapped apart"}),
  };
}

// The optimizer, and the loss.
std::vector<Field> optimizer_fields() {
  using T = TrainingPlan;
  return {
      boolean<&Scenario::training, &T::foreach>(
          {.path = "training.foreach",
           .fallback = "true",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "The optimizer updates the tensors of a mesh in one kernel; false: each in its own"}),
      boolean<&Scenario::training, &T::loss_parallel>(
          {.path = "training.loss_parallel",
           .fallback = "true",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Logits stay divided over tp; false: they are gathered, and every rank takes the loss"}),
      integer<&Scenario::training, &T::preconditioning, &Shampoo::frequency>(
          {.path = "training.precondition_frequency",
           .low = 1,
           .high = kMaxSize,
           .unit = "steps",
           .fallback = "1",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Of shampoo: between two computations of the preconditioners' roots"}),
      optional_integer<&Scenario::training, &T::preconditioning, &Shampoo::start>(
          {.path = "training.start_preconditioning_step",
           .low = 0,
           .high = kMaxSize,
           .unit = "steps",
           .fallback = "precondition_frequency",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Of shampoo_step: first step with preconditioners; grafted Adam before it"}),
      optional_integer<&Scenario::training, &T::preconditioning, &Shampoo::step>(
          {.path = "training.shampoo_step",
           .low = 0,
           .high = kMaxSize,
           .fallback = "the mean of a period",
           .scopes = Scopes::kStep,
           .group = kStep,
           .help = "Of shampoo: the step that is asked about"}),
      {.path = "training.shampoo",
       .type = FieldType::kBoolean,
       .fallback = "false",
       .group = kPlan,
       .help = "Distributed Shampoo instead of Adam",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.shampoo = v.boolean(); },
       .write = [](const Scenario& s) { return s.training.shampoo ? ordered_json(true) : ordered_json(); },
       .take = take_member<&Scenario::training, &T::shampoo>},
      {.path = "training.muon",
       .type = FieldType::kBoolean,
       .fallback = "false",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help = "Muon for the layers' matrices instead of Adam",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.muon = v.boolean(); },
       .write = [](const Scenario& s) { return s.training.muon ? ordered_json(true) : ordered_json(); },
       .take = take_member<&Scenario::training, &T::muon>},
      {.path = "training.newton_schulz_steps",
       .type = FieldType::kInteger,
       .low = 1,
       .high = kMaxSize,
       .fallback = "5",
       .scopes = Scopes::kStep,
       .group = kStep,
       .help = "Of muon: steps that orthogonalise a matrix's momentum",
       .read = integer<&Scenario::training, &T::newton_schulz_steps>({}).read,
       .write =
           [](const Scenario& s) {
             return s.training.muon ? ordered_json(s.training.newton_schulz_steps) : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::newton_schulz_steps>},
      optional_integer<&Scenario::training, &T::lora, &Lora::rank>(
          {.path = "training.lora",
           .flag = "--lora",
           .low = 0,
           .high = kMaxSize,
           .fallback = "all weights are trained",
           .scopes = Scopes::kStep,
           .group = kPlan,
           .help = "Rank of low-rank adapters, which alone are trained; all other weights are frozen"}),
      {.path = "training.lora_modules",
       .type = FieldType::kChoice,
       .choices = lora_module_names(),
       .fallback = "attention",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help =
           "Of lora: the weights that have adapters; ffn: of dense layers and shared experts; experts: the routed ones",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.training.set_lora_modules(v.string()); },
       .write =
           [](const Scenario& s) {
             return s.training.lora.rank > 0 ? ordered_json(name_of(s.training.lora.modules))
                                             : ordered_json();
           },
       .take = take_member<&Scenario::training, &T::lora, &Lora::modules>},
  };
}

// Faults of the machine.
std::vector<Field> fault_fields() {
  using F = Faults;
  return {
      {.path = "faults",
       .flag = "--faults",
       .type = FieldType::kObject,
       .fallback = "a healthy machine",
       .group = kMachine,
       .help = "JSON object or file: {\"slow_gpus\": [{\"gpu\": 3, \"factor\": 1.2}], \"nics\": ..., "
               "\"jitter\": 0.05, \"gpu_mtbf_hours\": 50000, ...}",
       .read = read_faults,
       .write = nothing,
       .take = take_member<&Scenario::faults>},
      per_gpu<F::SlowGpu, &F::slow_gpus, &F::SlowGpu::factor>(
          {.path = "faults.slow_gpus",
           .low = 1,
           .high = 1e6,
           .unit = "times as long as a usual GPU computes",
           .help = "Slow GPUs, {\"gpu\", \"factor\"} each"}),
      per_gpu<F::Port, &F::nvlinks, &F::Port::share>(
          {.path = "faults.nvlinks",
           .low = 1e-6,
           .high = 1,
           .unit = "share that is left",
           .help = "Degraded NVLink ports, {\"gpu\", \"bandwidth\"} each"}),
      per_gpu<F::Port, &F::nics, &F::Port::share>(
          {.path = "faults.nics",
           .low = 0,
           .high = 1,
           .unit = "share that is left",
           .help = "Degraded or failed (0) network ports, {\"gpu\", \"bandwidth\"} each"}),
      optional_number<&Scenario::faults, &F::jitter>({.path = "faults.jitter",
                                                      .low = 0,
                                                      .high = 1,
                                                      .fallback = "0",
                                                      .group = kMachine,
                                                      .help = "Relative deviation of kernel times"}),
      {.path = "faults.seed",
       .type = FieldType::kInteger,
       .low = 0,
       .high = 0x1p62,
       .fallback = "1",
       .group = kMachine,
       .help = "Of the jitter",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.faults.seed = static_cast<std::uint64_t>(v.integer(0)); },
       .write =
           [](const Scenario& s) {
             return s.faults.jitter > 0 ? ordered_json(s.faults.seed) : ordered_json();
           },
       .take = take_member<&Scenario::faults, &F::seed>},
      optional_number<&Scenario::faults, &F::gpu_mtbf_hours>({.path = "faults.gpu_mtbf_hours",
                                                              .low = 1e-3,
                                                              .high = 1e12,
                                                              .unit = "hours",
                                                              .scopes = Scopes::kStep,
                                                              .group = kMachine,
                                                              .help = "Mean time between failures of a GPU"}),
      optional_number<&Scenario::faults, &F::checkpoint_s>({.path = "faults.checkpoint_s",
                                                            .low = 1e-3,
                                                            .high = 1e6,
                                                            .unit = "seconds",
                                                            .fallback = "30",
                                                            .scopes = Scopes::kStep,
                                                            .group = kMachine,
                                                            .help = "Standing still for a checkpoint"}),
      optional_number<&Scenario::faults, &F::restart_s>({.path = "faults.restart_s",
                                                         .low = 1e-3,
                                                         .high = 1e6,
                                                         .unit = "seconds",
                                                         .fallback = "300",
                                                         .scopes = Scopes::kStep,
                                                         .group = kMachine,
                                                         .help = "From a failure until training goes on"}),
      optional_number<&Scenario::faults, &F::interval_s>({.path = "faults.checkpoint_interval_s",
                                                          .low = 1e-3,
                                                          .high = 1e9,
                                                          .unit = "seconds",
                                                          .fallback = "the best",
                                                          .scopes = Scopes::kStep,
                                                          .group = kMachine,
                                                          .help = "Work between checkpoints"}),
  };
}

// The sizes of the plan.
std::vector<Field> parallel_fields() {
  using P = Parallel;
  return {
      {.path = "mesh",
       .flag = "--mesh",
       .type = FieldType::kObject,
       .fallback = "none",
       .group = kPlan,
       .help = "A torch DeviceMesh instead of the sizes: replicate=2,shard=2,tp=2; also pp, cp, ep",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.mesh = DeviceMesh::parse(v); },
       .write = [](const Scenario& s) { return s.mesh.to_json(); },
       .take = take_member<&Scenario::mesh>},
      size<&P::tp>({.path = "parallel.tp",
                    .flag = "--tp",
                    .fallback = "1",
                    .help = "Tensor-parallel size of the dense part"}),
      size<&P::cp>({.path = "parallel.cp", .flag = "--cp", .fallback = "1", .help = "Context-parallel size"}),
      size<&P::ep>({.path = "parallel.ep", .flag = "--ep", .fallback = "1", .help = "Expert-parallel size"}),
      size<&P::etp>({.path = "parallel.etp",
                     .flag = "--etp",
                     .fallback = "1",
                     .help = "Tensor-parallel size of the experts"}),
      data_parallel({.path = "parallel.dp",
                     .flag = "--dp",
                     .fallback = "fills the cluster",
                     .help = "Data-parallel size"}),
      size<&P::pp>({.path = "parallel.pp", .flag = "--pp", .fallback = "1", .help = "Pipeline stages"}),
      size<&P::vpp>({.path = "parallel.vpp",
                     .flag = "--vpp",
                     .fallback = "1",
                     .help = "Virtual pipeline stages per rank"}),
      microbatches({.path = "parallel.microbatches",
                    .flag = "--microbatches",
                    .fallback = "1",
                    .help = "Microbatches per step"}),
      {.path = "parallel.global_batch",
       .flag = "--global-batch",
       .type = FieldType::kText,
       .fallback = "dp x microbatches x micro-batch",
       .scopes = Scopes::kStep,
       .group = kPlan,
       .help = "Sequences of a step (1024) or tokens (4Mtokens, as near as whole microbatches come, 5 %): "
               "says the microbatches, whatever the plan",
       .read =
           [](const Field&, Scenario& s, const JsonNode& v) {
             s.batch = GlobalBatch::parse(v.is_integer() ? std::to_string(v.integer()) : v.string());
           },
       .write =
           [](const Scenario& s) { return s.batch.given() ? ordered_json(s.batch.text()) : ordered_json(); },
       .take = take_member<&Scenario::batch>},
      size<&P::micro_batch>({.path = "parallel.micro_batch",
                             .flag = "--micro-batch",
                             .unit = "sequences",
                             .fallback = "1",
                             .help = "Sequences per microbatch"}),
      size<&P::seq>({.path = "parallel.seq",
                     .flag = "--seq",
                     .unit = "tokens",
                     .fallback = "4096",
                     .help = "Tokens per sequence"}),
  };
}

// The question, and prices.
std::vector<Field> question_fields() {
  return {
      optional_integer<&Scenario::topk>({.path = "topk",
                                         .flag = "--topk",
                                         .low = 1,
                                         .high = kMaxSize,
                                         .unit = "experts",
                                         .fallback = "the model's",
                                         .group = kRouting,
                                         .help = "Experts per token"}),
      boolean<&Scenario::train>(
          {.path = "train",
           .flag = "--inference",
           .fallback = "true",
           .group = kQuestion,
           .help = "false (--inference): the forward pass of a training batch alone; moesim prices no "
                   "serving: no decode, no KV cache"}),
      {.path = "seed",
       .flag = "--seed",
       .type = FieldType::kInteger,
       .low = 0,
       .high = 0x1p64,
       .fallback = "1",
       .group = kQuestion,
       .help = "Of everything that is drawn",
       .read = read_seed,
       .write = write_seed,
       .take = take_member<&Scenario::seed>},
      {.path = "prices",
       .flag = "--prices",
       .type = FieldType::kObject,
       .fallback = "none",
       .group = kMachine,
       .help =
           "A GPU-hour: 2.10, h100=2.10,b200=4, or JSON (or a file of it): gpu_hour or node_hour, a number "
           "or one per profile; currency",
       .read =
           [](const Field&, Scenario& s, const JsonNode& v) {
             s.prices = v.is_string() ? parse_prices(beside(v, v.string())) : PriceTable::parse(v);
           },
       .write = [](const Scenario& s) { return s.prices.to_json(); },
       .take = take_member<&Scenario::prices>},
  };
}

// Of a machine that is bought.
std::vector<Field> ownership_fields() {
  using O = Ownership;
  constexpr double kMostPrice = 1e9;
  return {
      {.path = "ownership.buy",
       .flag = "--buy",
       .type = FieldType::kObject,
       .fallback = "rented",
       .group = kMoney,
       .help = "Price of a GPU that is bought, with its share of server, network and storage: 35000, "
               "h100=35000,b200=50000, or JSON (or a file of it): gpu or node, a number or one per profile",
       .read =
           [](const Field&, Scenario& s, const JsonNode& v) {
             s.ownership.buy = v.is_string() ? parse_prices(beside(v, v.string()), O::kKeys)
                               : v.is_object()
                                   ? PriceTable::parse(v, O::kKeys)
                                   : parse_prices(fmt::format("{}", v.number(1e-6, kMostPrice)), O::kKeys);
           },
       .write = [](const Scenario& s) { return s.ownership.buy.to_json(O::kKeys); },
       .take = take_member<&Scenario::ownership, &O::buy>},
      optional_number<&Scenario::ownership, &O::years>({.path = "ownership.years",
                                                        .flag = "--years",
                                                        .low = 0.1,
                                                        .high = 30,
                                                        .unit = "years",
                                                        .fallback = "5",
                                                        .group = kMoney,
                                                        .help = "That a bought machine serves"}),
      optional_number<&Scenario::ownership, &O::kwh>(
          {.path = "ownership.kwh",
           .flag = "--kwh",
           .low = 0,
           .high = 1000,
           .fallback = "0",
           .group = kMoney,
           .help = "Price of a kWh, of all that the nodes take at most: of a bought machine, else beside the "
                   "rent"}),
      optional_number<&Scenario::ownership, &O::pue>(
          {.path = "ownership.pue",
           .flag = "--pue",
           .low = 1,
           .high = 5,
           .fallback = "1.56",
           .group = kMoney,
           .help = "Power usage effectiveness: energy of the data center over that of its machines"}),
      optional_number<&Scenario::ownership, &O::hosting>(
          {.path = "ownership.hosting",
           .flag = "--hosting",
           .low = 0,
           .high = 1e6,
           .fallback = "0",
           .group = kMoney,
           .help = "Price of a kW of a bought machine's nodes in a data center, a month"}),
      optional_number<&Scenario::ownership, &O::idle_share>(
          {.path = "ownership.idle_share",
           .flag = "--idle-share",
           .low = 0,
           .high = 0.99,
           .fallback = "0",
           .group = kMoney,
           .help = "Share of a bought machine's years without work, which its work pays for"}),
  };
}

const std::vector<Field>& table() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all;
    for (const std::vector<Field>& some :
         {subject_fields(), step_fields(), overlap_fields(), layout_fields(), optimizer_fields(),
          fault_fields(), parallel_fields(), question_fields(), ownership_fields()})
      all.insert(all.end(), some.begin(), some.end());
    check(all.size() <= kMostFields, "a bit for every field");
    return all;
  }();
  return fields;
}

}  // namespace

std::span<const Field> scenario_fields() { return table(); }

std::size_t index_of(const Field& field) { return static_cast<std::size_t>(&field - table().data()); }

const Field* find_field(std::string_view path) {
  for (const Field& field : table())
    if (field.path == path) return &field;
  return nullptr;
}

bool Scenario::gave(std::string_view path) const {
  const Field* field = find_field(path);
  check(field != nullptr, "a field of this path");
  return given.test(index_of(*field));
}

void Scenario::give(std::string_view path) {
  const Field* field = find_field(path);
  check(field != nullptr, "a field of this path");
  given.set(index_of(*field));
}

void Scenario::give(std::string_view path, Origin origin) {
  give(path);
  origins.set(path, std::move(origin));
}

Origin Scenario::origin_of(std::string_view path) const {
  if (!gave(path)) return {};
  const Origin* origin = origins.find(path);
  return origin ? *origin : Origin{Origin::Kind::kSaid, ""};
}

const Field* unused_field(const Scenario& scenario) {
  const Scopes scope = scope_of(scenario);
  for (const Field& field : table())
    if (scenario.given.test(index_of(field)) && !field.used_in(scope)) return &field;
  return nullptr;
}

std::string unused_message(const Field& field, std::string_view named, const Scenario& scenario) {
  return fmt::format("{}: found with scope {}, which does not use it; scope {} does", named,
                     kScopes[static_cast<std::size_t>(scenario.scope)],
                     field.used_in(Scopes::kStep) ? "step" : "layer");
}

}  // namespace moesim::models
