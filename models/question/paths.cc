#include "models/question/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/units.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/workload/model_json.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

void set_nested(nlohmann::json& object, std::string_view path, nlohmann::json value) {
  nlohmann::json* at = &object;
  for (const std::string_view part : split(path, '.')) at = &(*at)[std::string(part)];
  *at = std::move(value);
}

// Returns the path below its field: "nic.bandwidth".
std::string_view rest_of(const ScenarioPath& path) {
  return std::string_view(path.path).substr(path.top().size() + 1);
}

ScenarioPath model_size(const ModelSize& size) {
  ScenarioPath part{"model." + size.key, size.is_switch ? FieldType::kBoolean : FieldType::kInteger,
                    size.about};
  if (!size.is_switch)
    part.number = [key = size.key](const Scenario& s) { return model_object(s.model).value(key, 0.0); };
  part.set_part = [](const ScenarioPath& p, Scenario& s, const JsonNode& value) {
    if (s.model.hidden == 0)
      throw InputError(fmt::format("{}: found a scenario without a model, expected one to change", p.path));
    change_model(s.model, rest_of(p), value);
  };
  return part;
}

// A parameter of a named distribution, which becomes the routing.
ScenarioPath routing_parameter(std::string path, std::string about) {
  ScenarioPath part{std::move(path), FieldType::kNumber, std::move(about),
                    [](const Scenario& s) { return s.routing.parameter; }};
  part.set_part = [](const ScenarioPath& p, Scenario& s, const JsonNode& value) {
    const nlohmann::json json = value.to_json();
    s.routing = RoutingSpec::parse(
        fmt::format("{}:{}", rest_of(p), json.is_string() ? json.get<std::string>() : json.dump()));
  };
  return part;
}

// A price replaces the other kind; the currency stays.
ScenarioPath price(std::string path) {
  ScenarioPath part{std::move(path), FieldType::kNumber, "",
                    [](const Scenario& s) { return s.prices.price; }};
  part.set_part = [](const ScenarioPath& p, Scenario& s, const JsonNode& value) {
    nlohmann::json prices{{"currency", s.prices.currency}};
    prices[std::string(rest_of(p))] = value.to_json();
    s.prices = PriceTable::parse(JsonNode::from_json(prices, p.path));
  };
  return part;
}

// Changes a number of the machine, or of the usual one where none was named.
void change_cluster(const ScenarioPath& path, Scenario& s, const JsonNode& value) {
  if (!s.cluster) s.set_cluster("dgx-h100");
  nlohmann::json object = nlohmann::json::object();
  set_nested(object, rest_of(path), value.to_json());
  s.cluster =
      std::make_shared<const Cluster>(s.cluster->changed(JsonNode::from_json(object, value.place().file)));
}

ScenarioPath machine(std::string path, FieldType type, std::string about,
                     std::function<double(const Scenario&)> number = {}) {
  ScenarioPath part{std::move(path), type, std::move(about), std::move(number)};
  part.set_part = change_cluster;
  return part;
}

ScenarioPath hardware(const HardwareNumber& number) {
  constexpr std::array<FieldType, 5> kTypes{FieldType::kBandwidth, FieldType::kSeconds, FieldType::kFlops,
                                            FieldType::kNumber, FieldType::kBytes};
  return machine("cluster." + std::string(number.path), kTypes[static_cast<std::size_t>(number.unit)],
                 std::string(number.what), [&number](const Scenario& s) { return number.value(*s.cluster); });
}

void set_dispatcher_option(const ScenarioPath& path, Scenario& s, const JsonNode& value) {
  const nlohmann::json json = value.to_json();
  name_dispatchers(s);
  for (DispatcherSpec& spec : s.dispatchers)
    spec.options[std::string(rest_of(path))] = json.is_string() ? json.get<std::string>() : json.dump();
}

// Returns the parts of the object fields.
std::vector<ScenarioPath> make_parts() {
  std::vector<ScenarioPath> parts{
      routing_parameter("routing.zipf", "exponent"),
      routing_parameter("routing.gini", "target Gini coefficient of the load"),
      routing_parameter("routing.dirichlet", "alpha"),
      routing_parameter("routing.lognormal", "sigma"),
      routing_parameter("routing.hot", "share of the rows that an eighth of the experts gets"),
      machine("cluster.profile", FieldType::kText, "the GPU's profile"),
      machine("cluster.nodes", FieldType::kInteger, "",
              [](const Scenario& s) { return double(s.cluster->nodes); }),
      machine("cluster.gpus_per_node", FieldType::kInteger, "",
              [](const Scenario& s) { return double(s.cluster->gpus_per_node); }),
      machine("cluster.fabric", FieldType::kText, ""),
      machine("cluster.rails", FieldType::kBoolean,
              "GPU i of every node is on the same switches, under --timing flow"),
      hardware(*find_hardware_number("nic.per_connection_cap")),
      hardware(*find_hardware_number("nic.latency")),
      machine("cluster.nic.ports_per_node", FieldType::kInteger, "",
              [](const Scenario& s) { return double(s.cluster->nic.ports_per_node); }),
      machine("cluster.nic.ports_per_gpu", FieldType::kInteger, ""),
      machine("cluster.nvlink.domain", FieldType::kInteger, "GPUs that reach each other without the network",
              [](const Scenario& s) { return double(s.cluster->nvlink.domain); }),
      hardware(*find_hardware_number("nvlink.latency")),
      hardware(*find_hardware_number("gpu.memory")),
      price("prices.gpu_hour"),
      price("prices.node_hour"),
  };
  for (const ModelSize& size : model_sizes()) parts.push_back(model_size(size));
  for (const HardwareNumber& number : hardware_numbers()) parts.push_back(hardware(number));
  return parts;
}

std::vector<ScenarioPath> make_paths() {
  const std::vector<ScenarioPath> parts = make_parts();
  std::vector<ScenarioPath> paths;
  for (const Field& field : scenario_fields()) {
    ScenarioPath& path = paths.emplace_back();
    path.path = field.path;
    path.type = field.type;
    path.about = field.help;
    path.field = &field;
    if (is_number(field.type))
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
    return {std::string(text), FieldType::kText, "", {}, nullptr, set_dispatcher_option};
  // Suggests the nearest suffix where no whole path is near.
  std::optional<std::string> near = closest(text, known);
  if (!near || near->find('.') == std::string::npos) {
    std::vector<std::string> ends;
    ends.reserve(known.size());
    for (const std::string& path : known) ends.push_back(path.substr(path.rfind('.') + 1));
    const std::string end(text.substr(text.rfind('.') + 1));
    if (const auto by_end = closest(end, ends); by_end && !near)
      near = known[static_cast<std::size_t>(std::find(ends.begin(), ends.end(), *by_end) - ends.begin())];
  }
  throw InputError(fmt::format("unknown path {}{}", in_quotes(text),
                               near ? "; did you mean '" + *near + "'?" : "; see `moesim whatif --paths`"));
}

void set(Scenario& s, const ScenarioPath& path, const JsonNode& value, const Origin& origin) {
  if (path.field) {
    set_field(*path.field, s, value, &origin);
    return;
  }
  const std::shared_ptr<const Cluster> before = s.cluster;
  try {
    path.set_part(path, s, value);
  } catch (const InputError& error) {
    if (!error.place().file.empty() || value.place().line == 0) throw;
    throw InputError(value.place(), error.what());
  }
  const SourcePlace place = value.place();
  s.give(path.top());
  // The fabric that the cluster has anyway changes nothing.
  if ((path.path == "cluster.rails" || path.path == "cluster.fabric") && before &&
      before->fabric == s.cluster->fabric)
    return;
  s.origins.set(path.path, place.line > 0 ? Origin::file(place.str()) : origin);
}

void set(Scenario& s, const ScenarioPath& path, const nlohmann::json& value, const Origin& origin) {
  // Text readers name the value themselves.
  set(s, path, JsonNode::from_json(value, value.is_string() ? "" : path.path), origin);
}

nlohmann::ordered_json value_at(const Scenario& s, const ScenarioPath& path) {
  if (path.field) return path.field->write(s);
  if (path.number) return path.number(s);
  const std::string key(rest_of(path));
  if (path.top() == "model") {
    const nlohmann::ordered_json object = model_object(s.model);
    return object.contains(key) ? object.at(key) : nlohmann::ordered_json();
  }
  if (path.top() == "dispatcher" && !s.dispatchers.empty()) {
    const auto at = s.dispatchers.front().options.find(key);
    return at == s.dispatchers.front().options.end() ? nlohmann::ordered_json()
                                                     : nlohmann::ordered_json(at->second);
  }
  if (path.path == "cluster.profile") return s.cluster->profile.source();
  if (path.path == "cluster.fabric") return s.cluster->fabric;
  return {};
}

namespace {

PathValue number_value(nlohmann::json json) {
  const auto number = json.get<double>();
  std::string text = json.is_number_integer() ? json.dump() : fmt::format("{}", number);
  return {std::move(json), std::move(text), number};
}

}  // namespace

PathValue value_of(const ScenarioPath& path, double number) {
  return number_value(json_of_number(path.path, path.type, number));
}

bool is_multiple(const ScenarioPath& path, std::string_view text) {
  return is_number(path.type) && trim(text).starts_with('x');
}

PathValue parse_value(const ScenarioPath& path, std::string_view text, const Scenario* baseline) {
  text = trim(text);
  if (is_multiple(path, text)) {
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
  nlohmann::json json = json_of_text(path.path, path.type, text);
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

}  // namespace moesim::models
