#include "tools/moesim/show/result_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/hardware/cluster_fabric.h"
#include "models/hardware/estimate.h"
#include "models/routing/overload.h"
#include "models/workload/model_summary.h"
#include "models/workload/scenario.h"
#include "tools/moesim/show/columns.h"

namespace moesim::tools {

Columns<models::Estimate> columns_of(Of<models::Estimate>) {
  using E = models::Estimate;
  return {{"value", &E::value}, {"low", &E::low, "5 %"}, {"high", &E::high, "95 %"}};
}

nlohmann::ordered_map<std::string, double> breakdown_of(const std::array<double, sim::kCategories>& us) {
  nlohmann::ordered_map<std::string, double> parts;
  for (std::size_t i = 0; i < sim::kCategories; ++i)
    if (us[i] > 0) parts[std::string(sim::name(static_cast<sim::Category>(i)))] = us[i];
  return parts;
}

Columns<models::LinkLoad> columns_of(Of<models::LinkLoad>) {
  using L = models::LinkLoad;
  return {{"from", &L::from}, {"to", &L::to}, {"bytes", &L::bytes}, {"utilisation", &L::utilisation}};
}

Columns<models::Overload> columns_of(Of<models::Overload>) {
  using O = models::Overload;
  return {{"avg", &O::avg, "of this stage"}, {"max", &O::max}, {"max_cum", &O::max_cum}};
}

Columns<OverloadMetrics> columns_of(Of<OverloadMetrics>) {
  const auto by_stage = [](double models::Overload::*factor) {
    return [factor](const OverloadMetrics& m) {
      std::vector<std::optional<double>> all;
      for (const models::Overload& stage : m.stages)
        all.push_back(where(m.cumulates || factor != &models::Overload::max_cum, stage.*factor));
      return all;
    };
  };
  return {{models::kAvgOverload, by_stage(&models::Overload::avg)},
          {models::kMaxOverload, by_stage(&models::Overload::max)},
          {models::kMaxCumOverload, by_stage(&models::Overload::max_cum)}};
}

namespace {

// The kinds of results by name: each by its command; a whole schema by "".
using Kinds = std::map<std::string, std::map<std::string, ResultSchema::Make>>;
Kinds& kinds() {
  static Kinds all;
  return all;
}

nlohmann::ordered_json schema_of_kinds(const std::map<std::string, ResultSchema::Make>& kinds) {
  nlohmann::ordered_json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                                {"title", ""},
                                {"type", "object"},
                                {"required", {"schema", "version", "inputs", "warnings"}}};
  std::string verb;
  for (const auto& [command, make] : kinds) {
    if (command.empty()) return make();
    verb = trim(command.substr(0, command.find_first_of("-ABCDEFGHIJKLMNOPQRSTUVWXYZ")));
    nlohmann::ordered_json figures = make();
    schema["properties"].update(figures["properties"], true);
    nlohmann::ordered_json& kind = schema["anyOf"].emplace_back();
    kind = {{"description", command}, {"required", figures["required"]}};
    if (figures.contains("narrow")) kind["properties"] = figures["narrow"];
  }
  schema["title"] = fmt::format("moesim {} --format json", kinds.size() == 1 ? kinds.begin()->first : verb);
  std::ranges::replace(verb, ' ', '-');
  schema["properties"]["schema"]["const"] = fmt::format("moesim.{}/1", verb);
  for (const char* name : {"version", "inputs", "warnings"})
    schema["properties"][name]["$ref"] = fmt::format("result.schema.json#/properties/{}", name);
  return schema;
}

}  // namespace

ResultSchema::ResultSchema(const std::string& name, const std::string& command, Make figures) {
  kinds()[name][command] = std::move(figures);
}

ResultSchema::ResultSchema(const std::string& name, const Make& schema) : ResultSchema(name, "", schema) {}

std::map<std::string, nlohmann::ordered_json> ResultSchema::all() {
  std::map<std::string, nlohmann::ordered_json> all;
  for (const auto& [name, of_name] : kinds()) all[name] = schema_of_kinds(of_name);
  return all;
}

void print_result(std::string_view verb, const nlohmann::ordered_json& inputs,
                  const nlohmann::ordered_json& figures, const std::vector<std::string>& warnings) {
  nlohmann::ordered_json result = envelope(verb, inputs, warnings);
  result.update(figures);
  print_json(result);
}

void add_model(nlohmann::ordered_json& result, const models::Scenario& scenario) {
  if (scenario.model.hidden > 0) result["model"] = models::model_summary(models::asked_model(scenario));
}

std::string microseconds(double us) { return fmt::format("{:.1f}", us); }

}  // namespace moesim::tools
