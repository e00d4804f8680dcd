// Fields of the question: model, machine, dispatchers, routing, scope, seed, rent.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <string>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/hardware/price_text.h"
#include "models/workload/field_makers.h"
#include "models/workload/model_json.h"

namespace moesim::models::fields {

namespace {

constexpr std::array<std::string_view, 4> kRouterTypes{"bf16", "fp16", "fp32", "fp64"};
constexpr std::array<std::string_view, 3> kActivationTypes{"bf16", "fp16", "fp32"};

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

}  // namespace

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
           .help = "GPUs of the job; --cluster h100, without a number, gets the nodes that hold them"}),
      {.path = "dispatcher",
       .flag = "--dispatcher",
       .type = FieldType::kObject,
       .fallback = "allgather,alltoall",
       .group = kDispatcher,
       .help = "To compare: name[:key=value...],... or all",
       .read = read_dispatchers,
       .write = write_dispatchers,
       .take = take_dispatchers},
      {.path = "routing",
       .flag = "--routing",
       .type = FieldType::kObject,
       .fallback = "balanced",
       .group = kRouting,
       .help = "Tokens per expert: balanced, zipf:1.2, gini:0.3, ... or a dispatching file",
       .read = read_routing,
       .write = write_routing,
       .take = take_member<&Scenario::routing>},
      {.path = "router_dtype",
       .flag = "--router-dtype",
       .type = FieldType::kChoice,
       .choices = kRouterTypes,
       .fallback = "fp32",
       .group = kRouting,
       .help = "Data type of the router",
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
       .help = "Data type of activations and weights; only --framework none takes another than bf16",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.set_activation(v.string()); },
       .write =
           [](const Scenario& s) {
             return s.activation == DType::kBf16 ? ordered_json() : ordered_json(name_of(s.activation));
           },
       .take = take_member<&Scenario::activation>},
  };
}

std::vector<Field> scope_fields() {
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
       .help = "Placement of the experts: balanced[:slots=N] deals them out by load, replicated to N "
               "slots",
       .read = [](const Field&, Scenario& s, const JsonNode& v) { s.placement = PlacementSpec::parse(v); },
       .write = write_placement,
       .take = take_member<&Scenario::placement>},
  };
}

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
       .help = "Seed of everything that is drawn",
       .read = read_seed,
       .write = write_seed,
       .take = take_member<&Scenario::seed>},
      {.path = "prices",
       .flag = "--prices",
       .type = FieldType::kObject,
       .fallback = "none",
       .group = kMachine,
       .help = "Price of a GPU-hour: 2.10, h100=2.10,b200=4, or JSON (or its file): gpu_hour or node_hour, "
               "a number or one per profile; currency",
       .read =
           [](const Field&, Scenario& s, const JsonNode& v) {
             s.prices = v.is_string() ? parse_prices(beside(v, v.string())) : PriceTable::parse(v);
           },
       .write = [](const Scenario& s) { return s.prices.to_json(); },
       .take = take_member<&Scenario::prices>},
  };
}

}  // namespace moesim::models::fields
