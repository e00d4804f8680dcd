#include "tools/moesim/questions/scenario_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/units.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/workload/scenario.h"

namespace moesim::tools {

namespace {

using models::Scenario;
using Kind = PathKind;

template <std::int64_t models::Parallel::*Field>
double parallel(const Scenario& s) {
  return static_cast<double>(s.parallel.*Field);
}

template <std::int64_t models::Architecture::*Field>
double model(const Scenario& s) {
  return static_cast<double>(s.model.*Field);
}

double routing_parameter(const Scenario& s) { return s.routing.parameter; }

std::vector<ScenarioPath> make_paths() {
  using P = models::Parallel;
  using A = models::Architecture;
  std::vector<ScenarioPath> paths{
      {"model", Kind::kText, "name, file or JSON object"},
      {"model.hidden", Kind::kCount, "", model<&A::hidden>},
      {"model.layers", Kind::kCount, "", model<&A::layers>},
      {"model.vocabulary", Kind::kCount, "", model<&A::vocabulary>},
      {"model.experts", Kind::kCount, "", model<&A::experts>},
      {"model.topk", Kind::kCount, "experts per token as the model was trained", model<&A::topk>},
      {"model.expert_ffn", Kind::kCount, "inner size of an expert", model<&A::expert_ffn>},
      {"model.dense_ffn", Kind::kCount, "", model<&A::dense_ffn>},
      {"model.dense_layers", Kind::kCount, "", model<&A::dense_layers>},
      {"model.moe_every", Kind::kCount, "", model<&A::moe_every>},
      {"model.shared_ffn", Kind::kCount, "", model<&A::shared_ffn>},
      {"model.routing_groups", Kind::kCount, "", model<&A::routing_groups>},
      {"model.routing_topk_groups", Kind::kCount, "", model<&A::routing_topk_groups>},
      {"model.mtp_layers", Kind::kCount, "", model<&A::mtp_layers>},
      {"model.latent", Kind::kCount, "", model<&A::latent>},
      {"model.gated", Kind::kFlag, ""},
      {"model.tied_embeddings", Kind::kFlag, ""},
      {"parallel.tp", Kind::kCount, "", parallel<&P::tp>},
      {"parallel.cp", Kind::kCount, "", parallel<&P::cp>},
      {"parallel.ep", Kind::kCount, "", parallel<&P::ep>},
      {"parallel.etp", Kind::kCount, "", parallel<&P::etp>},
      {"parallel.dp", Kind::kCount, "", parallel<&P::dp>},
      {"parallel.pp", Kind::kCount, "", parallel<&P::pp>},
      {"parallel.vpp", Kind::kCount, "", parallel<&P::vpp>},
      {"parallel.microbatches", Kind::kCount, "", parallel<&P::microbatches>},
      {"parallel.micro_batch", Kind::kCount, "sequences", parallel<&P::micro_batch>},
      {"parallel.seq", Kind::kCount, "tokens of a sequence", parallel<&P::seq>},
      {"topk", Kind::kCount, "experts per token", [](const Scenario& s) { return double(s.topk); }},
      {"seed", Kind::kCount, "", [](const Scenario& s) { return double(s.seed); }},
      {"train", Kind::kFlag, "false: forward only"},
      {"scope", Kind::kText, "layer or step"},
      {"dispatcher", Kind::kText, "names, or all"},
      {"routing", Kind::kText, "balanced, zipf:1.2, ... or a dispatching file"},
      {"routing.zipf", Kind::kNumber, "exponent", routing_parameter},
      {"routing.gini", Kind::kNumber, "target Gini coefficient of the load", routing_parameter},
      {"routing.dirichlet", Kind::kNumber, "alpha", routing_parameter},
      {"routing.lognormal", Kind::kNumber, "sigma", routing_parameter},
      {"routing.hot", Kind::kNumber, "share of the rows that an eighth of the experts gets",
       routing_parameter},
      {"placement", Kind::kText, ""},
      {"sharding", Kind::kText, ""},
      {"router_dtype", Kind::kText, ""},
      {"recompute", Kind::kText, ""},
      {"training.precision", Kind::kText, "of scope step"},
      {"training.schedule", Kind::kText, ""},
      {"training.sharding", Kind::kText, ""},
      {"training.shard_group", Kind::kCount, ""},
      {"training.launch", Kind::kText, ""},
      {"training.recompute", Kind::kText, ""},
      {"training.gradient_bytes", Kind::kCount, ""},
      {"training.reshard_after_forward", Kind::kFlag, ""},
      {"training.fp8_attention", Kind::kFlag, ""},
      {"training.fused_kernels", Kind::kFlag, ""},
      {"training.folding", Kind::kFlag, ""},
      {"training.overlap.expert_communication", Kind::kFlag, ""},
      {"training.overlap.shared_expert", Kind::kFlag, ""},
      {"training.overlap.gradients", Kind::kFlag, ""},
      {"training.overlap.parameters", Kind::kFlag, ""},
      {"training.overlap.delayed_wgrad", Kind::kFlag, ""},
      {"faults", Kind::kText, "JSON object: slow_gpus, nvlinks, nics, jitter, ..."},
      {"faults.jitter", Kind::kNumber, "relative deviation of kernel times",
       [](const Scenario& s) { return s.faults.jitter; }},
      {"faults.seed", Kind::kCount, "of the jitter"},
      {"faults.gpu_mtbf_hours", Kind::kNumber, "mean time between failures of a GPU",
       [](const Scenario& s) { return s.faults.gpu_mtbf_hours; }},
      {"faults.checkpoint_s", Kind::kNumber, "standing still for a checkpoint",
       [](const Scenario& s) { return s.faults.checkpoint_s; }},
      {"faults.restart_s", Kind::kNumber, "", [](const Scenario& s) { return s.faults.restart_s; }},
      {"faults.checkpoint_interval_s", Kind::kNumber, "work between checkpoints [the best]",
       [](const Scenario& s) { return s.faults.interval_s; }},
      {"cluster", Kind::kText, "name, file or JSON object"},
      {"cluster.profile", Kind::kText, "the GPU's profile"},
      {"cluster.nodes", Kind::kCount, "", [](const Scenario& s) { return double(s.cluster->nodes); }},
      {"cluster.gpus_per_node", Kind::kCount, "",
       [](const Scenario& s) { return double(s.cluster->gpus_per_node); }},
      {"cluster.fabric", Kind::kText, ""},
      {"cluster.nic.per_connection_cap", Kind::kBandwidth, "",
       [](const Scenario& s) { return s.cluster->nic.per_connection_cap; }},
      {"cluster.nic.latency", Kind::kSeconds, "one way between nodes, where above the profile's",
       [](const Scenario& s) { return s.cluster->nic.latency; }},
      {"cluster.nic.ports_per_node", Kind::kCount, "",
       [](const Scenario& s) { return double(s.cluster->nic.ports_per_node); }},
      {"cluster.nic.ports_per_gpu", Kind::kCount, ""},
      {"cluster.nvlink.domain", Kind::kCount, "GPUs that reach each other without the network",
       [](const Scenario& s) { return double(s.cluster->nvlink.domain); }},
      {"cluster.nvlink.latency", Kind::kSeconds, "",
       [](const Scenario& s) { return s.cluster->nvlink.latency; }},
      {"cluster.gpu.memory", Kind::kBytes, "",
       [](const Scenario& s) { return s.cluster->profile.device().memory_bytes; }},
      {"prices.gpu_hour", Kind::kNumber, "", [](const Scenario& s) { return s.prices.price; }},
      {"prices.node_hour", Kind::kNumber, "", [](const Scenario& s) { return s.prices.price; }},
  };
  constexpr std::array<Kind, 4> kKinds{Kind::kBandwidth, Kind::kSeconds, Kind::kFlops, Kind::kNumber};
  for (const models::HardwareNumber& number : models::hardware_numbers())
    paths.push_back({"cluster." + std::string(number.path), kKinds[static_cast<std::size_t>(number.unit)],
                     std::string(number.what),
                     [&number](const Scenario& s) { return number.value(*s.cluster); }});
  return paths;
}

bool is_number(Kind kind) { return kind != Kind::kFlag && kind != Kind::kText; }

const char* expected_of(Kind kind) {
  switch (kind) {
    case Kind::kCount:
      return "a whole number";
    case Kind::kNumber:
      return "a number";
    case Kind::kFlag:
      return "true or false";
    case Kind::kBandwidth:
      return "a bandwidth such as 100GBps or 400Gbps";
    case Kind::kSeconds:
      return "a time such as 2us";
    case Kind::kBytes:
      return "a size such as 80GB";
    case Kind::kFlops:
      return "a rate such as 989TFLOPS";
    case Kind::kText:
      break;
  }
  return "a value";
}

[[noreturn]] void refuse(const ScenarioPath& path, std::string_view found) {
  throw InputError(
      fmt::format("{}: found {}, expected {}", path.path, in_quotes(found), expected_of(path.kind)));
}

// Without a unit a number is SI, as tables of results have it; one that no machine has was meant with a unit.
bool forgot_unit(const ScenarioPath& path, std::string_view text) {
  const auto plain = parse_number(text);
  if (!plain || *plain == 0) return false;
  switch (path.kind) {
    case Kind::kBandwidth:
    case Kind::kBytes:
      return *plain < 1e6;
    case Kind::kFlops:
      return *plain < 1e9;
    case Kind::kSeconds:
      return *plain > 0.01;
    default:
      return false;
  }
}

double number_of(const ScenarioPath& path, std::string_view text) {
  if (forgot_unit(path, text)) refuse(path, text);
  try {
    switch (path.kind) {
      case Kind::kBandwidth:
        return parse_bandwidth(text);
      case Kind::kSeconds:
        return parse_seconds(text);
      case Kind::kBytes:
        return parse_bytes(text);
      case Kind::kFlops:
        return parse_flops(text);
      default:
        break;
    }
  } catch (const InputError&) {
    refuse(path, text);
  }
  const auto number = parse_number(trim(text));
  if (!number) refuse(path, text);
  return *number;
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
    if (path.path == text) return path;
    known.push_back(path.path);
    if (path.path.ends_with(suffix)) found = &path, ending.push_back(path.path);
  }
  if (ending.size() == 1) return *found;
  if (ending.size() > 1)
    throw InputError(
        fmt::format("path {}: found several, expected one of {}", in_quotes(text), join(ending, ", ")));
  if (text.starts_with("dispatcher.") && text.size() > 11) return {std::string(text), Kind::kText, "", {}};
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

PathValue value_of(const ScenarioPath& path, double number) {
  PathValue value;
  if (path.kind == Kind::kCount) {
    if (!(std::abs(number) < 0x1p62) || number != std::floor(number)) refuse(path, fmt::format("{}", number));
    value.json = static_cast<std::int64_t>(number);
    value.text = fmt::format("{}", static_cast<std::int64_t>(number));
  } else {
    value.json = number;
    value.text = fmt::format("{}", number);
  }
  value.number = number;
  return value;
}

PathValue parse_value(const ScenarioPath& path, std::string_view text, const Scenario* baseline) {
  text = trim(text);
  if (text.empty()) refuse(path, text);
  if (text.front() == '{' || text.front() == '[') {
    const JsonNode node = JsonNode::parse(text, path.path);
    return {node.to_json(), std::string(text), 0};
  }
  if (path.kind == Kind::kFlag) {
    if (text != "true" && text != "false") refuse(path, text);
    return {text == "true", std::string(text), 0};
  }
  if (!is_number(path.kind)) return {std::string(text), std::string(text), 0};
  if (text.front() == 'x') {
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
  return value_of(path, number_of(path, text));
}

std::pair<std::string, std::string> split_assignment(const std::string& text, std::string_view option) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw InputError(fmt::format("{}: found {}, expected path=value", option, in_quotes(text)));
  return {std::string(trim(std::string_view(text).substr(0, equals))), text.substr(equals + 1)};
}

std::string shown(const ScenarioPath& path, double number) {
  switch (path.kind) {
    case Kind::kBandwidth:
      return format_bandwidth(number);
    case Kind::kSeconds:
      return format_us(number * 1e6);
    case Kind::kBytes:
      return format_bytes(number);
    case Kind::kFlops:
      return fmt::format("{:.0f} TFLOP/s", number * 1e-12);
    default:
      return fmt::format("{:.6g}", number);
  }
}

}  // namespace moesim::tools
