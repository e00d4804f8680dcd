// Fields of the question: model, machine, dispatchers, routing, seed.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <string>

#include "base/file_io.h"
#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/recipes/framework_recipe.h"
#include "models/workload/field_makers.h"
#include "models/workload/model_json.h"

namespace moesim::models::fields {

namespace {

constexpr auto kRouterTypes = name_list("bf16", "fp16", "fp32", "fp64");
constexpr auto kActivationTypes = name_list("bf16", "fp16", "fp32");

void read_model(const Field&, Scenario& s, const JsonNode& value) {
  if (!value.is_string()) {
    s.model = Architecture::parse(value);
    return;
  }
  const std::string name = value.string();
  const auto names = Architecture::names();
  s.set_model(std::find(names.begin(), names.end(), name) != names.end() ? name : beside(value, name));
}

void read_cluster(const Field&, Scenario& s, const JsonNode& value) {
  if (value.is_string() && is_file(beside(value, value.string())))
    s.set_cluster(beside(value, value.string()));
  else
    s.cluster = std::make_shared<const Cluster>(Cluster::load(value)), s.fewest_gpus = false;
}

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

ordered_json write_dispatchers(const Field&, const Scenario& s) {
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

ordered_json write_routing(const Field&, const Scenario& s) {
  if (s.routing.kind != RoutingSpec::Kind::kFile) return s.routing.text;
  // A text with a slash is a path, not a distribution.
  return s.routing.path.find('/') == std::string::npos ? "./" + s.routing.path : s.routing.path;
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

ordered_json write_seed(const Field&, const Scenario& s) {
  constexpr auto kMostNumber = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return s.seed > kMostNumber ? ordered_json(std::to_string(s.seed)) : ordered_json(s.seed);
}

// One of some data types.
template <DType Scenario::*Type>
Field data_type(std::span<const std::string_view> choices, std::string_view path, std::string_view flag,
                const Section& section, std::string_view help, Field more) {
  more.choices = choices;
  more.read = [](const Field& f, Scenario& s, const JsonNode& value) {
    const std::string name = value.string();
    const DType type = dtype_named(name);
    if (std::ranges::find(f.choices, name_of(type)) == f.choices.end())
      throw InputError(fmt::format("{}: found {}, expected {} or {}", words_of(f.path), in_quotes(name),
                                   fmt::join(f.choices.first(f.choices.size() - 1), ", "), f.choices.back()));
    s.*Type = type;
  };
  more.value = [](const Field&, const Scenario& s) -> ordered_json { return name_of(s.*Type); };
  return field<Type>(FieldType::kChoice, path, flag, section, help, std::move(more));
}

}  // namespace

std::vector<Field> subject_fields() {
  return {
      field<&Scenario::model>(
          FieldType::kObject, "model", "--model", kModel,
          "Model: a name of `moesim list models`, or a JSON file",
          {.form = R"({"anyOf": [{"type": "string", "description": "a built-in name or a file"},
                                 {"$ref": "model.schema.json"}]})",
           .read = read_model,
           .value = [](const Field&, const Scenario& s) { return to_json(s.model); },
           .written = [](const Field&, const Scenario& s) { return s.model.hidden > 0; }}),
      field<&Scenario::cluster>(
          FieldType::kObject, "cluster", "--cluster", kMachine,
          "Cluster: a name of `moesim list clusters`, with its number of nodes or without (h100), or a JSON "
          "file",
          {.fallback = "the smallest dgx-h100xN",
           .form = R"({"anyOf": [{"type": "string", "description": "a built-in name or a file"},
                                 {"$ref": "cluster.schema.json"}]})",
           .read = read_cluster,
           .value = [](const Field&, const Scenario& s) { return s.cluster->to_json(); },
           .written = changed}),
      integer<&Scenario::gpus>(
          "gpus", "--gpus", kMachine,
          "GPUs of the job; --cluster h100, without a number, gets the nodes that hold them",
          {.fallback = "all of the cluster", .written = changed}),
      field<&Scenario::dispatchers>(FieldType::kObject, "dispatcher", "--dispatcher", kDispatcher,
                                    "To compare: name[:key=value...],... or all",
                                    {.fallback = "allgather,alltoall",
                                     .form = R"({"$defs": {"one": {"anyOf": [{"type": "string"},
                        {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}]}},
                       "anyOf": [{"$ref": "#/properties/dispatcher/$defs/one"},
                        {"type": "array", "items": {"$ref": "#/properties/dispatcher/$defs/one"}}]})",
                                     .read = read_dispatchers,
                                     .value = write_dispatchers,
                                     .take = take_dispatchers}),
      field<&Scenario::routing>(FieldType::kObject, "routing", "--routing", kRouting,
                                "Tokens per expert: balanced, zipf:1.2, gini:0.3, ... or a dispatching file",
                                {.fallback = "balanced",
                                 .form = R"({"anyOf": [{"type": "string"},
             {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}},
              "additionalProperties": false},
             {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}},
              "additionalProperties": {"type": "number"}}]})",
                                 .read = read_routing,
                                 .value = write_routing}),
      data_type<&Scenario::router_dtype>(
          kRouterTypes, "router_dtype", "--router-dtype", kRouting, "Data type of the router",
          {.fallback = "fp32",
           .used_if = {{[](const Scenario& s) { return s.model.experts > 0; },
                        "{} with model {model}, which has no experts; expected a model with experts"}}}),
      data_type<&Scenario::activation>(
          kActivationTypes, "activation_dtype", "--activation-dtype", kModelOfLayer,
          "Data type of activations and weights; only --framework none takes another than bf16",
          {.fallback = "bf16",
           .valid_if = {{[](const Scenario& s) { return s.training.framework == Framework::kNone; },
                         "{} with framework {training.framework}, whose products were measured with bf16 "
                         "rows; expected it with framework none"}},
           .written = changed}),
  };
}

std::vector<Field> question_fields() {
  return {
      integer<&Scenario::topk>("topk", "--topk", kRouting, "Experts per token",
                               {.unit = "experts", .fallback = "the model's", .written = changed}),
      boolean<&Scenario::train>("train", "--inference", kQuestion,
                                "false (--inference): the forward pass of a training batch alone; moesim "
                                "prices no serving: no decode, no KV cache"),
      field<&Scenario::job_framework>(
          FieldType::kText, "job.framework", "", kQuestion,
          "Framework of the job that the scenario was read from (`moesim list recipes`)",
          {.fallback = "none",
           .read = [](const Field&, Scenario& s,
                      const JsonNode& v) { s.job_framework = FrameworkRecipe::find(v.string()).name; },
           .written = changed}),
      field<&Scenario::job_dispatcher>(
          FieldType::kText, "job.dispatcher", "", kQuestion,
          "Dispatcher that this job runs today, the baseline of `whatif`: name[:key=value...]",
          {.fallback = "none",
           .read = [](const Field&, Scenario& s,
                      const JsonNode& v) { s.job_dispatcher = DispatcherSpec::parse(v.string()).text(); },
           .written = changed}),
      field<&Scenario::seed>(
          FieldType::kInteger, "seed", "--seed", kQuestion, "Seed of everything that is drawn",
          {.fallback = "1",
           .form = R"({"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 0})",
           .read = read_seed,
           .value = write_seed}),
  };
}

}  // namespace moesim::models::fields
