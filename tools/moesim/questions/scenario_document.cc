#include "tools/moesim/questions/scenario_document.h"

#include <fmt/format.h>

#include <utility>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"

namespace moesim::tools {

using nlohmann::json;

namespace {

// Sets object["a"]["b"] for "a.b"; what is in the way and no object is replaced.
void set_nested(json& object, std::string_view path, const json& value) {
  json* at = &object;
  for (const std::string_view part : split(path, '.')) {
    if (!at->is_object()) *at = json::object();
    at = &(*at)[std::string(part)];
  }
  *at = value;
}

// A path in a scenario file: beside the file if it is there, else as it stands.
std::string beside(const std::string& origin, const std::string& path) {
  const std::filesystem::path from_file = std::filesystem::path(origin).parent_path() / path;
  return std::filesystem::path(path).is_relative() && is_file(from_file) ? from_file.string() : path;
}

}  // namespace

json architecture_json(const models::Architecture& a) {
  using models::Attention;
  const Attention& t = a.attention;
  json attention{
      {"heads", t.heads}, {"qkv_bias", t.qkv_bias}, {"output_bias", t.output_bias},  {"qk_norm", t.qk_norm},
      {"sinks", t.sinks}, {"window", t.window},     {"window_every", t.window_every}};
  if (t.kind == Attention::Kind::kLatent) {
    attention["kind"] = "latent";
    attention["q_rank"] = t.q_rank;
    attention["kv_rank"] = t.kv_rank;
    attention["nope_dim"] = t.nope_dim;
    attention["rope_dim"] = t.rope_dim;
    attention["value_dim"] = t.value_dim;
  } else {
    attention["kv_heads"] = t.kv_heads;
    attention["head_dim"] = t.head_dim;
  }
  json object{{"name", a.name},
              {"hidden", a.hidden},
              {"layers", a.layers},
              {"vocabulary", a.vocabulary},
              {"tied_embeddings", a.tied_embeddings},
              {"attention", attention},
              {"dense_ffn", a.dense_ffn},
              {"dense_layers", a.dense_layers},
              {"moe_every", a.moe_every},
              {"experts", a.experts},
              {"topk", a.topk},
              {"expert_ffn", a.expert_ffn},
              {"gated", a.gated},
              {"expert_bias", a.expert_bias},
              {"router_bias", a.router_bias},
              {"shared_ffn", a.shared_ffn},
              {"shared_gate", a.shared_gate},
              {"routing_groups", a.routing_groups},
              {"routing_topk_groups", a.routing_topk_groups},
              {"mtp_layers", a.mtp_layers},
              {"latent", a.latent},
              {"pattern", a.pattern}};
  if (a.mamba.heads > 0)
    object["mamba"] = {{"heads", a.mamba.heads},
                       {"head_dim", a.mamba.head_dim},
                       {"state", a.mamba.state},
                       {"groups", a.mamba.groups},
                       {"conv", a.mamba.conv}};
  return object;
}

ScenarioDocument ScenarioDocument::read(const std::filesystem::path& file, const CommonOptions& common) {
  const JsonNode node = JsonNode::read(file);
  models::Scenario checked = models::Scenario::parse(node);  // says what is wrong with its line
  models::name_dispatchers(checked);
  ScenarioDocument made = from_json(node.to_json(), file.string());
  if (common.seed_given) made.set(find_path("seed"), common.seed);
  return made;
}

ScenarioDocument ScenarioDocument::from_json(json document, std::string origin) {
  ScenarioDocument made;
  made.document_ = std::move(document);
  made.origin_ = std::move(origin);
  return made;
}

models::Scenario ScenarioDocument::scenario() const {
  models::Scenario s = models::Scenario::parse(JsonNode::from_json(document_, origin_));
  if (s.dispatchers.empty()) s.set_dispatchers("allgather,alltoall");
  models::name_dispatchers(s);
  s.files.insert(s.files.begin(), origin_);
  return s;
}

models::Scenario ScenarioDocument::part(const std::string& key) const {
  const json only = document_.contains(key) ? json{{key, document_.at(key)}} : json::object();
  models::Scenario s = models::Scenario::parse(JsonNode::from_json(only, origin_));
  models::name_dispatchers(s);
  return s;
}

void ScenarioDocument::set(const ScenarioPath& path, const json& value) {
  const std::string_view text = path.path;
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) {
    document_[path.path] = value;
    return;
  }
  const std::string_view top = text.substr(0, dot), rest = text.substr(dot + 1);
  if (top == "model")
    set_model(rest, value);
  else if (top == "cluster")
    set_cluster(rest, value);
  else if (top == "routing")
    set_routing(rest, value);
  else if (top == "dispatcher")
    set_dispatcher(rest, value);
  else if (top == "prices")
    document_["prices"] = {{std::string(rest), value}};
  else
    set_nested(document_, text, value);
}

void ScenarioDocument::set_model(std::string_view key, const json& value) {
  const models::Scenario s = part("model");
  if (s.model.hidden == 0)
    throw InputError(fmt::format("model.{}: found a scenario without a model, expected one to change", key));
  // Everything by its own name: a Hugging Face config calls it otherwise.
  document_["model"] = architecture_json(s.model);
  set_nested(document_["model"], key, value);
}

void ScenarioDocument::set_cluster(std::string_view key, const json& value) {
  if (!document_.contains("cluster")) {
    models::Scenario s = scenario();
    s.resolve();
    document_["cluster"] = s.cluster->name;
  }
  json& cluster = document_["cluster"];
  if (cluster.is_string()) cluster = json{{"base", beside(origin_, cluster.get<std::string>())}};
  if (key == "nic.ports_per_gpu" && cluster.contains("nic")) cluster["nic"].erase("ports_per_node");
  if (key == "nic.ports_per_node" && cluster.contains("nic")) cluster["nic"].erase("ports_per_gpu");
  set_nested(cluster, key, value);
}

void ScenarioDocument::set_routing(std::string_view key, const json& value) {
  document_["routing"] =
      fmt::format("{}:{}", key, value.is_string() ? value.get<std::string>() : value.dump());
}

void ScenarioDocument::set_dispatcher(std::string_view key, const json& value) {
  const models::Scenario s = scenario();
  json list = json::array();
  for (const models::DispatcherSpec& spec : s.dispatchers) {
    json one{{"name", spec.name}};
    for (const auto& [option, text] : spec.options) one[option] = text;
    one[std::string(key)] = value;
    list.push_back(std::move(one));
  }
  document_["dispatcher"] = std::move(list);
}

}  // namespace moesim::tools
