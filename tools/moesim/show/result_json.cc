#include "tools/moesim/show/result_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster_fabric.h"
#include "models/hardware/estimate.h"
#include "models/routing/overload.h"
#include "models/workload/model_summary.h"
#include "models/workload/scenario.h"

namespace moesim::tools {

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json estimate_json(const models::Estimate& e) {
  return {{"value", e.value}, {"low", e.low}, {"high", e.high}};
}

nlohmann::ordered_json breakdown_json(const std::array<double, sim::kCategories>& breakdown_us) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < sim::kCategories; ++i)
    if (breakdown_us[i] > 0) parts[std::string(sim::name(static_cast<sim::Category>(i)))] = breakdown_us[i];
  return parts;
}

nlohmann::ordered_json link_json(const models::LinkLoad& link) {
  return {{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}, {"utilisation", link.utilisation}};
}

nlohmann::ordered_json overload_json(const models::Overload& overload) {
  return {{"avg", overload.avg}, {"max", overload.max}, {"max_cum", overload.max_cum}};
}

nlohmann::ordered_json overload_metrics_json(std::span<const models::Overload> stages) {
  nlohmann::ordered_json out;
  for (const char* name : {models::kAvgOverload, models::kMaxOverload, models::kMaxCumOverload})
    out[name] = nlohmann::ordered_json::array();
  for (const models::Overload& stage : stages) {
    out[models::kAvgOverload].push_back(stage.avg);
    out[models::kMaxOverload].push_back(stage.max);
    out[models::kMaxCumOverload].push_back(stage.max_cum);
  }
  return out;
}

void add_model(nlohmann::ordered_json& result, const models::Scenario& scenario) {
  if (scenario.model.hidden > 0) result["model"] = models::model_summary(models::asked_model(scenario));
}

std::string microseconds(double us) { return fmt::format("{:.1f}", us); }

}  // namespace moesim::tools
