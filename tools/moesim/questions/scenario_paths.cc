#include "tools/moesim/questions/scenario_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/workload/scenario.h"

namespace moesim::tools {

namespace {

using models::Field;
using models::FieldType;
using models::Scenario;

template <std::int64_t models::Architecture::*Size>
double model(const Scenario& s) {
  return static_cast<double>(s.model.*Size);
}

double routing_parameter(const Scenario& s) { return s.routing.parameter; }

// Parts of the fields that are objects.
std::vector<ScenarioPath> make_parts() {
  using A = models::Architecture;
  std::vector<ScenarioPath> parts{
      {"model.hidden", FieldType::kInteger, "", model<&A::hidden>},
      {"model.layers", FieldType::kInteger, "", model<&A::layers>},
      {"model.vocabulary", FieldType::kInteger, "", model<&A::vocabulary>},
      {"model.experts", FieldType::kInteger, "", model<&A::experts>},
      {"model.topk", FieldType::kInteger, "experts per token as the model was trained", model<&A::topk>},
      {"model.expert_ffn", FieldType::kInteger, "inner size of an expert", model<&A::expert_ffn>},
      {"model.dense_ffn", FieldType::kInteger, "", model<&A::dense_ffn>},
      {"model.dense_layers", FieldType::kInteger, "", model<&A::dense_layers>},
      {"model.moe_every", FieldType::kInteger, "", model<&A::moe_every>},
      {"model.shared_ffn", FieldType::kInteger, "", model<&A::shared_ffn>},
      {"model.routing_groups", FieldType::kInteger, "", model<&A::routing_groups>},
      {"model.routing_topk_groups", FieldType::kInteger, "", model<&A::routing_topk_groups>},
      {"model.mtp_layers", FieldType::kInteger, "", model<&A::mtp_layers>},
      {"model.latent", FieldType::kInteger, "", model<&A::latent>},
      {"model.gated", FieldType::kBoolean, ""},
      {"model.tied_embeddings", FieldType::kBoolean, ""},
      {"routing.zipf", FieldType::kNumber, "exponent", routing_parameter},
      {"routing.gini", FieldType::kNumber, "target Gini coefficient of the load", routing_parameter},
      {"routing.dirichlet", FieldType::kNumber, "alpha", routing_parameter},
      {"routing.lognormal", FieldType::kNumber, "sigma", routing_parameter},
      {"routing.hot", FieldType::kNumber, "share of the rows that an eighth of the experts gets",
       routing_parameter},
      {"cluster.profile", FieldType::kText, "the GPU's profile"},
      {"cluster.nodes", FieldType::kInteger, "", [](const Scenario& s) { return double(s.cluster->nodes); }},
      {"cluster.gpus_per_node", FieldType::kInteger, "",
       [](const Scenario& s) { return double(s.cluster->gpus_per_node); }},
      {"cluster.fabric", FieldType::kText, ""},
      {"cluster.rails", FieldType::kBoolean,
       "GPU i of every node is on the same switches, under --timing flow"},
      {"cluster.nic.per_connection_cap", FieldType::kBandwidth, "",
       [](const Scenario& s) { return s.cluster->nic.per_connection_cap; }},
      {"cluster.nic.latency", FieldType::kSeconds, "one way between nodes, where above the profile's",
       [](const Scenario& s) { return s.cluster->nic.latency; }},
      {"cluster.nic.ports_per_node", FieldType::kInteger, "",
       [](const Scenario& s) { return double(s.cluster->nic.ports_per_node); }},
      {"cluster.nic.ports_per_gpu", FieldType::kInteger, ""},
      {"cluster.nvlink.domain", FieldType::kInteger, "GPUs that reach each other without the network",
       [](const Scenario& s) { return double(s.cluster->nvlink.domain); }},
      {"cluster.nvlink.latency", FieldType::kSeconds, "",
       [](const Scenario& s) { return s.cluster->nvlink.latency; }},
      {"cluster.gpu.memory", FieldType::kBytes, "",
       [](const Scenario& s) { return s.cluster->profile.device().memory_bytes; }},
      {"prices.gpu_hour", FieldType::kNumber, "", [](const Scenario& s) { return s.prices.price; }},
      {"prices.node_hour", FieldType::kNumber, "", [](const Scenario& s) { return s.prices.price; }},
  };
  constexpr std::array<FieldType, 4> kTypes{FieldType::kBandwidth, FieldType::kSeconds, FieldType::kFlops,
                                            FieldType::kNumber};
  for (const models::HardwareNumber& number : models::hardware_numbers())
    parts.push_back({"cluster." + std::string(number.path), kTypes[static_cast<std::size_t>(number.unit)],
                     std::string(number.what),
                     [&number](const Scenario& s) { return number.value(*s.cluster); }});
  return parts;
}

std::vector<ScenarioPath> make_paths() {
  const std::vector<ScenarioPath> parts = make_parts();
  std::vector<ScenarioPath> paths;
  for (const Field& field : models::scenario_fields()) {
    ScenarioPath& path = paths.emplace_back();
    path.path = field.path;
    path.type = field.type;
    path.about = field.help;
    path.field = &field;
    if (models::is_number(field.type))
      path.number = [&field](const Scenario& s) {
        const nlohmann::ordered_json value = field.write(s);
        return value.is_number() ? value.get<double>() : 0;
      };
    const std::string below = path.path + ".";
    for (const ScenarioPath& part : parts)
      if (part.path.starts_with(below)) paths.push_back(part);
  }
  return paths;
}

}  // namespace

std::span<const ScenarioPath> scenario_paths() {
  static const std::vector<ScenarioPath> paths = make_paths();
  return paths;
}

ScenarioPath find_path(std::string_view text) {
  std::vector<std::string> known, ending;
  const std::string suffix = "." + std::string(text);
  const ScenarioPath* found = nullptr;
  for (const ScenarioPath& path : scenario_paths()) {
    if (path.path == text || (path.field && !path.field->also.empty() && path.field->also == text))
      return path;
    known.push_back(path.path);
    if (path.path.ends_with(suffix)) found = &path, ending.push_back(path.path);
  }
  if (ending.size() == 1) return *found;
  if (ending.size() > 1)
    throw InputError(
        fmt::format("path {}: found several, expected one of {}", in_quotes(text), join(ending, ", ")));
  if (text.starts_with("dispatcher.") && text.size() > 11)
    return {std::string(text), FieldType::kText, "", {}};
  // The end that is nearest, where the whole path is not.
  std::optional<std::string> near = closest(text, known);
  if (!near || near->find('.') == std::string::npos) {
    std::vector<std::string> ends;
    for (const std::string& path : known) ends.push_back(path.substr(path.rfind('.') + 1));
    const std::string end(text.substr(text.rfind('.') + 1));
    if (const auto by_end = closest(end, ends); by_end && !near)
      near = known[static_cast<std::size_t>(std::find(ends.begin(), ends.end(), *by_end) - ends.begin())];
  }
  throw InputError(fmt::format("unknown path {}{}", in_quotes(text),
                               near ? "; did you mean '" + *near + "'?" : "; see `moesim whatif --paths`"));
}

namespace {

PathValue number_value(nlohmann::json json) {
  const auto number = json.get<double>();
  std::string text = json.is_number_integer() ? json.dump() : fmt::format("{}", number);
  return {std::move(json), std::move(text), number};
}

}  // namespace

PathValue value_of(const ScenarioPath& path, double number) {
  return number_value(models::json_of_number(path.path, path.type, number));
}

PathValue parse_value(const ScenarioPath& path, std::string_view text, const Scenario* baseline) {
  text = trim(text);
  if (models::is_number(path.type) && text.starts_with('x')) {
    const auto factor = parse_number(text.substr(1));
    if (!factor || *factor <= 0)
      throw InputError(
          fmt::format("{}: found {}, expected a multiple such as x2", path.path, in_quotes(text)));
    if (!baseline || !path.number)
      throw InputError(fmt::format("{}: found {}, expected a value: there is nothing to multiply", path.path,
                                   in_quotes(text)));
    const double present = path.number(*baseline);
    if (present <= 0)
      throw InputError(fmt::format("{}: found {}, expected a value: the scenario has {}", path.path,
                                   in_quotes(text), present));
    return value_of(path, present * *factor);
  }
  nlohmann::json json = models::json_of_text(path.path, path.type, text);
  if (json.is_number()) return number_value(std::move(json));
  return {std::move(json), std::string(text), 0};
}

std::pair<std::string, std::string> split_assignment(const std::string& text, std::string_view option) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw InputError(fmt::format("{}: found {}, expected path=value", option, in_quotes(text)));
  return {std::string(trim(std::string_view(text).substr(0, equals))), text.substr(equals + 1)};
}

std::pair<const char*, double> unit_of(const ScenarioPath& path) {
  switch (path.type) {
    case FieldType::kBandwidth:
      return {"GB/s", 1e9};
    case FieldType::kSeconds:
      return {"us", 1e-6};
    case FieldType::kBytes:
      return {"GB", 1e9};
    case FieldType::kFlops:
      return {"TFLOP/s", 1e12};
    default:
      return {"", 1};
  }
}

std::string shown(const ScenarioPath& path, double number) {
  switch (path.type) {
    case FieldType::kBandwidth:
      return format_bandwidth(number);
    case FieldType::kSeconds:
      return format_us(number * 1e6);
    case FieldType::kBytes:
      return format_bytes(number);
    case FieldType::kFlops:
      return fmt::format("{:.0f} TFLOP/s", number * 1e-12);
    default:
      return fmt::format("{:.6g}", number);
  }
}

}  // namespace moesim::tools
