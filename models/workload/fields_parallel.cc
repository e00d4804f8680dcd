// Fields of the parallel plan: mesh, sizes, batch, placement of experts; and the mesh itself.
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "models/workload/field_makers.h"

namespace moesim::models {

namespace {

constexpr double kMostRanks = 1 << 30;

constexpr std::array<std::pair<const char*, std::int64_t DeviceMesh::*>, 6> kAxes{
    {{"pp", &DeviceMesh::pp},
     {"replicate", &DeviceMesh::replicate},
     {"shard", &DeviceMesh::shard},
     {"cp", &DeviceMesh::cp},
     {"ep", &DeviceMesh::ep},
     {"tp", &DeviceMesh::tp}}};

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  names.reserve(kAxes.size());
  for (const auto& [name, size] : kAxes) names.emplace_back(name);
  return names;
}

std::int64_t& size_of(DeviceMesh& mesh, const std::string& name) {
  for (const auto& [axis, size] : kAxes)
    if (name == axis) return mesh.*size;
  throw InputError(fmt::format("mesh: found axis {}, expected one of {}{}", in_quotes(name),
                               join(axis_names(), ", "), did_you_mean(name, axis_names())));
}

}  // namespace

namespace fields {

namespace {

// A size of the plan.
template <std::int64_t Parallel::*Size>
Field size(std::string_view path, std::string_view flag, std::string_view help, Field more = {}) {
  return integer<&Scenario::parallel, Size>(path, flag, kPlan, help, std::move(more));
}

bool has_copies(const Scenario& s) { return s.placement.slots > 0 || !s.placement.expert_of.empty(); }

}  // namespace

std::vector<Field> parallel_fields() {
  using P = Parallel;
  return {
      field<&Scenario::mesh>(
          FieldType::kObject, "mesh", "--mesh", kPlan,
          "torch DeviceMesh instead of the sizes: replicate=2,shard=2,tp=2; also pp, cp, ep",
          {.fallback = "none",
           .form = R"({"anyOf": [
             {"type": "string",
              "pattern": "^(pp|replicate|shard|cp|ep|tp)=[0-9]+(,(pp|replicate|shard|cp|ep|tp)=[0-9]+)*$"},
             {"type": "object",
              "propertyNames": {"enum": ["pp", "replicate", "shard", "cp", "ep", "tp"]},
              "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 1073741824}}]})",
           .read = [](const Field&, Scenario& s, const JsonNode& v) { s.mesh = DeviceMesh::parse(v); },
           .value = [](const Field&, const Scenario& s) { return s.mesh.to_json(); }}),
      size<&P::tp>("parallel.tp", "--tp", "Tensor-parallel size of the dense part",
                   {.valid_if = {{[](const Scenario& s) {
                                    return !s.is_step() || s.model.attention.heads % s.parallel.tp == 0;
                                  },
                                  "{} with model {model}, whose attention heads it does not divide; expected "
                                  "a divisor of their number"}}}),
      size<&P::cp>("parallel.cp", "--cp", "Context-parallel size"),
      size<&P::ep>("parallel.ep", "--ep", "Expert-parallel size"),
      size<&P::etp>("parallel.etp", "--etp", "Tensor-parallel size of the experts"),
      size<&P::dp>(
          "parallel.dp", "--dp", "Data-parallel size",
          {.fallback = "fills the cluster",
           .written = [](const Field& f, const Scenario& s) { return s.resolved || s.gave(f.path); }}),
      size<&P::pp>("parallel.pp", "--pp", "Pipeline stages"),
      size<&P::vpp>("parallel.vpp", "--vpp", "Virtual pipeline stages per rank",
                    {.used_if = {{[](const Scenario& s) { return s.parallel.pp > 1; },
                                  "{} with pp 1, which has no pipeline; expected pp > 1", "parallel.pp"}}}),
      size<&P::microbatches>(
          "parallel.microbatches", "--microbatches", "Microbatches per step",
          {.used_if = {{[](const Scenario& s) {
                          return s.is_step() || s.parallel.pp > 1 || s.parallel.vpp > 1 || has_copies(s) ||
                                 s.sharding_asked();
                        },
                        "{} with scope layer and pp 1, where each microbatch is alone; expected pp > 1, or "
                        "scope step",
                        "parallel.pp"}},
           // Follows from a batch, and is not written until it has.
           .written = [](const Field& f,
                         const Scenario& s) { return s.resolved || s.gave(f.path) || !s.batch.given(); }}),
      text<&Scenario::batch>(
          "parallel.global_batch", "--global-batch", kPlanOfStep,
          "Sequences of a step (1024) or tokens (4Mtokens, rounded to whole microbatches, 5 % off at most); "
          "the microbatches follow from it",
          {.fallback = "dp x microbatches x micro-batch",
           .form = R"({"type": ["string", "integer"]})",
           .read =
               [](const Field&, Scenario& s, const JsonNode& v) {
                 s.batch = GlobalBatch::parse(v.is_integer() ? std::to_string(v.integer()) : v.string());
               },
           .written = changed}),
      size<&P::micro_batch>("parallel.micro_batch", "--micro-batch", "Sequences per microbatch",
                            {.unit = "sequences"}),
      size<&P::seq>("parallel.seq", "--seq", "Tokens per sequence", {.unit = "tokens"}),
  };
}

std::vector<Field> scope_fields() {
  return {
      enum_field<&Scenario::scope>("scope", "--scope", kQuestion, "One MoE layer, or a whole training step"),
      field<&Scenario::placement>(
          FieldType::kObject, "placement", "--placement", kRouting,
          "Placement of the experts: balanced[:slots=N] deals them out by load, replicated to N slots",
          {.fallback = "in order",
           .form = R"({"anyOf": [{"type": "string"},
             {"type": "array", "minItems": 1,
              "items": {"type": "integer", "minimum": 0, "maximum": 1048575}}]})",
           // Without copies, a placement by load moves experts between the ranks.
           .used_if =
               {{[](const Scenario& s) { return has_copies(s) || s.parallel.ep > 1; },
                 "{} with ep 1, whose ranks hold all experts; expected ep > 1, or slots for copies",
                 "parallel.ep"},
                {[](const Scenario& s) {
                   return has_copies(s) || s.routing.kind != RoutingSpec::Kind::kBalanced;
                 },
                 "{} with routing balanced, which loads all experts alike; expected another routing, or "
                 "slots for copies"}},
           .read = [](const Field&, Scenario& s,
                      const JsonNode& v) { s.placement = PlacementSpec::parse(v); },
           .value =
               [](const Field&, const Scenario& s) {
                 return s.placement.expert_of.empty() ? ordered_json(s.placement.text)
                                                      : ordered_json(s.placement.expert_of);
               },
           .written = [](const Field&, const Scenario& s) { return s.placement.given(); },
           .same =
               [](const Scenario& one, const Scenario& other) {
                 return one.placement.text == other.placement.text &&
                        one.placement.expert_of == other.placement.expert_of;
               }}),
  };
}

}  // namespace fields

DeviceMesh DeviceMesh::parse(const JsonNode& node) {
  DeviceMesh mesh;
  mesh.given = true;
  if (!node.is_string()) {
    JsonObject object(node);
    for (const auto& [name, size] : kAxes)
      mesh.*size = object.integer(name, 1, 1, static_cast<std::int64_t>(kMostRanks));
    object.finish();
    return mesh;
  }
  const std::string text = node.string();
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      throw InputError(fmt::format("mesh: found {}, expected axis=size, such as replicate=2,shard=2,tp=2",
                                   in_quotes(part)));
    std::int64_t& size = size_of(mesh, std::string(trim(part.substr(0, equals))));
    const auto number = parse_int(std::string(trim(part.substr(equals + 1))));
    if (!number || *number < 1 || static_cast<double>(*number) > kMostRanks)
      throw InputError(fmt::format("mesh: found {}, expected a size of at least 1", in_quotes(part)));
    size = *number;
  }
  return mesh;
}

nlohmann::ordered_json DeviceMesh::to_json() const {
  if (!given) return {};
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, size] : kAxes)
    if (this->*size > 1) object[name] = this->*size;
  return object;
}

RankGrid DeviceMesh::grid() const {
  std::vector<Axis> axes;
  for (const auto& [name, size] : kAxes) {
    const std::string axis = name;
    if (this->*size > 1 || axis == "replicate" || axis == "shard" || axis == "tp")
      axes.push_back({axis, this->*size});
  }
  return RankGrid::fastest_last(std::move(axes));
}

}  // namespace moesim::models
