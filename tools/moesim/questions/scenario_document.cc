#include "tools/moesim/questions/scenario_document.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "tools/moesim/jobs/load_job.h"

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

// What stands at a path; nullptr: nothing.
const json* at_path(const json& document, std::string_view path) {
  const json* at = &document;
  for (const std::string_view part : split(path, '.')) {
    if (!at->is_object() || !at->contains(std::string(part))) return nullptr;
    at = &at->at(std::string(part));
  }
  return at;
}

}  // namespace

ScenarioDocument ScenarioDocument::read(const std::filesystem::path& file, const CommonOptions& common,
                                        const std::vector<std::string>& with) {
  const auto framework = is_scenario_text(file.string()) ? std::nullopt : framework_of_file(file);
  if (framework) {
    const Job job = load_job(file, *framework, with);
    models::Scenario settled = models::Scenario::parse(JsonNode::from_json(job.scenario, file.string()));
    settle_job(job, settled);
    ScenarioDocument made = from_json(job.scenario, file.string());
    for (const char* path : {"parallel.dp", "parallel.microbatches"})
      if (settled.gave(path)) set_nested(made.document_, path, models::find_field(path)->write(settled));
    made.of_job_ = true;
    made.remarks_ = job.remarks();
    if (common.seed_given) made.set(find_path("seed"), common.seed);
    return made;
  }
  if (!with.empty())
    throw InputError(SourcePlace{file.string()}, "--with and no job's arguments",
                     "one of them: it adds to these");
  const JsonNode node = read_scenario(file.string());
  models::Scenario checked = models::Scenario::parse(node);  // says what is wrong with its line
  models::name_dispatchers(checked);
  ScenarioDocument made = from_json(node.to_json(), node.place().file);
  if (common.seed_given) made.set(find_path("seed"), common.seed);
  return made;
}

ScenarioDocument ScenarioDocument::from_json(json document, std::string origin) {
  ScenarioDocument made;
  made.document_ = std::move(document);
  made.origin_ = std::move(origin);
  // Every field by its own path, so that a change finds it.
  for (const models::Field& field : models::scenario_fields()) {
    const std::string older(field.also);
    if (older.empty() || !made.document_.contains(older) || at_path(made.document_, field.path)) continue;
    const json value = made.document_.at(older);
    made.document_.erase(older);
    set_nested(made.document_, field.path, value);
  }
  return made;
}

models::Scenario ScenarioDocument::scenario() const {
  models::Scenario s = models::Scenario::parse(JsonNode::from_json(document_, origin_));
  models::name_dispatchers(s);
  s.model.remarks.insert(s.model.remarks.end(), remarks_.begin(), remarks_.end());
  if (of_job_)
    while (const models::Field* unused = models::unused_field(s)) s.given.reset(models::index_of(*unused));
  return s;
}

models::Scenario ScenarioDocument::part(const std::string& key) const {
  const json only = document_.contains(key) ? json{{key, document_.at(key)}} : json::object();
  models::Scenario s = models::Scenario::parse(JsonNode::from_json(only, origin_));
  models::name_dispatchers(s);
  return s;
}

// Puts the object that a short form stands for in its place: "overlap": "gradients", "faults": "slow.json".
void ScenarioDocument::spell_out(std::string_view prefix) {
  const json* short_form = at_path(document_, prefix);
  if (!short_form || !short_form->is_string()) return;
  const models::Scenario s = part(std::string(prefix.substr(0, prefix.find('.'))));
  const std::string below = std::string(prefix) + ".";
  set_nested(document_, prefix, json::object());
  for (const models::Field& field : models::scenario_fields())
    if (field.path.starts_with(below))
      if (const auto value = field.write(s); !value.is_null()) set_nested(document_, field.path, value);
}

void ScenarioDocument::set(const ScenarioPath& path, const json& value) {
  const std::string_view text = path.path;
  if (path.field) {
    for (std::size_t dot = text.find('.'); dot != std::string_view::npos; dot = text.find('.', dot + 1))
      spell_out(text.substr(0, dot));
    set_nested(document_, text, value);
    return;
  }
  const std::size_t dot = text.find('.');
  const std::string_view top = text.substr(0, dot), rest = text.substr(dot + 1);
  if (top == "model")
    set_model(rest, value);
  else if (top == "cluster")
    set_cluster(rest, value);
  else if (top == "routing")
    set_routing(rest, value);
  else if (top == "dispatcher")
    set_dispatcher(rest, value);
  else
    set_price(rest, value);
}

void ScenarioDocument::set_model(std::string_view key, const json& value) {
  const models::Scenario s = part("model");
  if (s.model.hidden == 0)
    throw InputError(fmt::format("model.{}: found a scenario without a model, expected one to change", key));
  // Everything by its own name: a Hugging Face config calls it otherwise.
  document_["model"] = models::model_object(s.model);
  set_nested(document_["model"], key, value);
}

void ScenarioDocument::set_cluster(std::string_view key, const json& value) {
  if (!document_.contains("cluster")) {
    models::Scenario s = scenario();
    s.resolve();
    document_["cluster"] = s.cluster->name;
  }
  json& cluster = document_["cluster"];
  if (cluster.is_string()) cluster = json{{"base", models::beside(origin_, cluster.get<std::string>())}};
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

// A price replaces the other kind; the currency stays.
void ScenarioDocument::set_price(std::string_view key, const json& value) {
  json prices{{std::string(key), value}};
  if (const json* currency = at_path(document_, "prices.currency")) prices["currency"] = *currency;
  document_["prices"] = std::move(prices);
}

bool is_scenario_text(std::string_view file) { return trim(file).starts_with('{'); }

JsonNode read_scenario(const std::string& file) {
  return is_scenario_text(file) ? JsonNode::parse(file, "scenario") : JsonNode::read(file);
}

void refuse_unused(const models::Scenario& scenario, const std::filesystem::path& file) {
  const models::Field* field = models::unused_field(scenario);
  if (!field) return;
  if (file.empty())
    throw InputError(
        models::unused_message(*field, field->flag.empty() ? field->path : field->flag, scenario));
  // By the path that the file calls it.
  const JsonNode root = read_scenario(file.string());
  for (const std::string_view path : {field->path, field->also}) {
    std::optional<JsonNode> at = root;
    for (const std::string_view name : split(path, '.'))
      at = at && at->is_object() ? at->find(name) : std::nullopt;
    if (at && !path.empty()) throw InputError(at->place(), models::unused_message(*field, path, scenario));
  }
  throw InputError(models::unused_message(*field, field->path, scenario));
}

}  // namespace moesim::tools
