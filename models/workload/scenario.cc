#include "models/workload/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// A path written in a scenario file: beside the file if it is there, else as it stands.
std::string beside(const JsonNode& node, const std::string& path) {
  const std::filesystem::path from_file = std::filesystem::path(node.place().file).parent_path() / path;
  return std::filesystem::path(path).is_relative() && path_exists(from_file) ? from_file.string() : path;
}

void parse_parallel(const JsonNode& node, Scenario& scenario) {
  JsonObject o(node);
  Parallel& p = scenario.parallel;
  scenario.dp_given = scenario.dp_given || o.find("dp").has_value();
  scenario.seq_given = scenario.seq_given || o.find("seq").has_value();
  const std::array<std::pair<const char*, std::int64_t*>, 10> sizes{{{"tp", &p.tp},
                                                                     {"cp", &p.cp},
                                                                     {"ep", &p.ep},
                                                                     {"etp", &p.etp},
                                                                     {"dp", &p.dp},
                                                                     {"pp", &p.pp},
                                                                     {"vpp", &p.vpp},
                                                                     {"microbatches", &p.microbatches},
                                                                     {"micro_batch", &p.micro_batch},
                                                                     {"seq", &p.seq}}};
  for (const auto& [key, value] : sizes) *value = o.integer(key, *value, 1, kMaxSize);
  o.finish();
}

template <class Function>
void at_place(const JsonNode& node, Function&& function) {
  try {
    function();
  } catch (const InputError& error) {
    if (!error.place().file.empty()) throw;
    throw InputError(node.place(), error.what());
  }
}

}  // namespace

void Scenario::set_model(const std::string& name_or_path) {
  model = Architecture::load(name_or_path);
  const auto names = Architecture::names();
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) files.emplace_back(name_or_path);
  if (model.name == "custom" || model.name == "hugging-face")
    model.name = std::filesystem::path(name_or_path).stem().string();
}

void Scenario::set_cluster(const std::string& name_or_path) {
  cluster = std::make_shared<const Cluster>(Cluster::load(name_or_path));
  if (is_file(name_or_path)) files.emplace_back(name_or_path);
}

void Scenario::set_dispatchers(const std::string& text) {
  dispatchers = DispatcherSpec::parse_list(text);
  all_dispatchers = trim(text) == "all";
}

void Scenario::set_router_dtype(const std::string& name) {
  router_dtype = dtype_named(name);
  if (router_dtype != DType::kBf16 && router_dtype != DType::kFp16 && router_dtype != DType::kFp32 &&
      router_dtype != DType::kFp64)
    throw InputError(
        fmt::format("router dtype: found {}, expected bf16, fp16, fp32 or fp64", in_quotes(name)));
}

void Scenario::set_recompute(const std::string& name) {
  static const std::vector<std::string> kNames{"none", "activation", "full"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end())
    throw InputError(fmt::format("recompute: found {}, expected none, activation or full{}", in_quotes(name),
                                 did_you_mean(name, kNames)));
  recompute = static_cast<Recompute>(found - kNames.begin());
}

Scenario Scenario::parse(const JsonNode& node) {
  Scenario s;
  JsonObject o(node);
  if (const auto model = o.find("model")) {
    if (model->is_string()) {
      const auto names = Architecture::names();
      const std::string name = model->string();
      const bool builtin = std::find(names.begin(), names.end(), name) != names.end();
      at_place(*model, [&] { s.set_model(builtin ? name : beside(*model, name)); });
    } else {
      s.model = Architecture::parse(*model);
    }
  }
  if (const auto parallel = o.find("parallel")) parse_parallel(*parallel, s);
  if (const auto dispatcher = o.find("dispatcher")) {
    if (dispatcher->is_string()) {
      at_place(*dispatcher, [&] { s.set_dispatchers(dispatcher->string()); });
      for (DispatcherSpec& spec : s.dispatchers) spec.origin = dispatcher->place().str();
    } else {
      const std::vector<JsonNode> items =
          dispatcher->is_array() ? dispatcher->items() : std::vector<JsonNode>{*dispatcher};
      for (const JsonNode& item : items) s.dispatchers.push_back(DispatcherSpec::parse(item));
    }
  }
  if (const auto routing = o.find("routing")) {
    s.routing = RoutingSpec::parse(*routing);
    if (s.routing.kind == RoutingSpec::Kind::kFile) s.routing.path = beside(*routing, s.routing.path);
  }
  if (const auto placement = o.find("placement")) s.placement = PlacementSpec::parse(*placement);
  if (const auto sharding = o.find("sharding"))
    at_place(*sharding, [&] { s.sharding = ShardingSpec::parse(sharding->string()); });
  if (const auto cluster = o.find("cluster")) {
    if (cluster->is_string() && is_file(beside(*cluster, cluster->string()))) {
      at_place(*cluster, [&] { s.set_cluster(beside(*cluster, cluster->string())); });
    } else {
      at_place(*cluster, [&] { s.cluster = std::make_shared<const Cluster>(Cluster::load(*cluster)); });
    }
  }
  const std::string scope = o.string("scope", "layer");
  if (scope != "layer" && scope != "step") o.at("scope").fail(in_quotes(scope), "\"layer\" or \"step\"");
  s.scope = scope == "step" ? Scope::kStep : Scope::kLayer;
  s.train = o.boolean("train", true);
  s.topk = o.integer("topk", 0, 1, kMaxSize);
  s.seed = static_cast<std::uint64_t>(o.integer("seed", 1, 0));
  if (const auto dtype = o.find("router_dtype"))
    at_place(*dtype, [&] { s.set_router_dtype(dtype->string()); });
  if (const auto recompute = o.find("recompute"))
    at_place(*recompute, [&] { s.set_recompute(recompute->string()); });
  if (const auto prices = o.find("prices")) s.prices = PriceTable::parse(*prices);
  if (const auto faults = o.find("faults")) s.faults = Faults::parse(*faults);
  if (const auto training = o.find("training")) s.training = TrainingPlan::parse(*training);
  o.finish();
  return s;
}

void Scenario::resolve() {
  if (model.hidden == 0) throw InputError("scenario: found no model, expected \"model\" or --model NAME");
  if (model.experts == 0 || model.topk == 0)
    throw InputError(fmt::format("model {}: found no experts, expected a mixture of experts", model.name));
  if (topk == 0) topk = model.topk;
  if (topk > model.experts)
    throw InputError(
        fmt::format("topk: found {}, expected at most the model's {} experts", topk, model.experts));
  Parallel p = parallel;
  if (!dp_given) {
    p.dp = 1;
    // Enough data-parallel ranks that the expert grid fits a pipeline stage.
    const std::int64_t dense = p.tp * p.cp, group = p.etp * p.ep;
    if (p.tp < 1 || p.cp < 1 || p.ep < 1 || p.etp < 1 || p.pp < 1 || dense > kMaxSize || group > kMaxSize)
      throw InputError("parallel: found a size outside 1 to 2^31, expected a number of ranks");
    p.dp = group / std::gcd(dense, group);
    const std::int64_t smallest = dense * p.dp;
    if (cluster) {
      const std::int64_t stage = cluster->ranks() / p.pp;
      if (stage >= smallest) p.dp = stage / smallest * p.dp;
    }
  }
  p.validate(model.experts);
  if (cluster && p.world() > cluster->ranks())
    throw InputError(
        fmt::format("cluster {}: found {} GPUs, expected at least tp x cp x dp x pp = {} for this plan",
                    cluster->name, cluster->ranks(), p.world()));
  if (!cluster)
    cluster = std::make_shared<const Cluster>(Cluster::load(fmt::format("dgx-h100x{}", (p.world() + 7) / 8)));
  parallel = p;
  faults.check_against(*cluster);
  if (sharding.shard > 0 && (p.dp * p.cp % sharding.shard != 0))
    throw InputError(fmt::format("sharding: found shard={}, expected a divisor of dp x cp = {}",
                                 sharding.shard, p.dp * p.cp));
  if (sharding.shard > 0 && p.edp() > 1 && p.edp() % std::min(p.edp(), sharding.shard) != 0)
    throw InputError(
        fmt::format("sharding: found shard={}, expected one that divides the {} replicas of an expert",
                    sharding.shard, p.edp()));
  if (placement.given() && placement.slots > 0 && placement.slots < model.experts)
    throw InputError(fmt::format("placement: found {} slots, expected at least the model's {} experts",
                                 placement.slots, model.experts));
  if (model.expert_ffn % p.etp != 0)
    throw InputError(fmt::format("parallel.etp: found {}, expected a divisor of the experts' inner size {}",
                                 p.etp, model.expert_ffn));
}

}  // namespace moesim::models
