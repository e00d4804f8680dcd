#include "tools/moesim/show/result_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster_fabric.h"
#include "models/hardware/estimate.h"
#include "models/routing/overload.h"
#include "models/workload/model_summary.h"
#include "models/workload/scenario.h"
#include "tools/moesim/show/columns.h"

namespace moesim::tools {

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

Columns<models::Estimate> columns_of(Of<models::Estimate>) {
  using E = models::Estimate;
  return {{"value", &E::value}, {"low", &E::low, "5 %"}, {"high", &E::high, "95 %"}};
}

nlohmann::ordered_json estimate_json(const models::Estimate& e) { return json_of(e); }

nlohmann::ordered_json breakdown_json(const std::array<double, sim::kCategories>& breakdown_us) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < sim::kCategories; ++i)
    if (breakdown_us[i] > 0) parts[std::string(sim::name(static_cast<sim::Category>(i)))] = breakdown_us[i];
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

nlohmann::ordered_json overload_json(const models::Overload& overload) { return json_of(overload); }
nlohmann::ordered_json link_json(const models::LinkLoad& link) { return json_of(link); }
nlohmann::ordered_json overload_metrics_json(std::span<const models::Overload> stages) {
  return json_of(OverloadMetrics{stages});
}

nlohmann::ordered_json result_schema(std::string_view verb, std::string_view title,
                                     nlohmann::ordered_json figures) {
  nlohmann::ordered_json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                                {"title", title},
                                {"type", "object"},
                                {"required", {"schema", "version", "inputs", "warnings"}},
                                {"properties", {{"schema", {{"const", fmt::format("moesim.{}/1", verb)}}}}}};
  for (const char* name : {"version", "inputs", "warnings"})
    schema["properties"][name]["$ref"] = fmt::format("result.schema.json#/properties/{}", name);
  for (const auto& name : figures["required"]) schema["required"].push_back(name);
  schema["properties"].update(figures["properties"]);
  return schema;
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
