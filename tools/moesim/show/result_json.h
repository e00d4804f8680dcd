// Shared parts of several verbs' results.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/graph/task_graph.h"

namespace moesim::models {
struct Estimate;
struct LinkLoad;
struct Overload;
struct Scenario;
}  // namespace moesim::models

namespace moesim::tools {

// Lists of figures (show/columns.h).
template <class T>
class Columns;
template <class T>
struct Of;

Columns<models::Estimate> columns_of(Of<models::Estimate>);

// Returns the nonzero parts of a time, by category.
nlohmann::ordered_map<std::string, double> breakdown_of(const std::array<double, sim::kCategories>& us);

// A link with its traffic under timing `flow`.
Columns<models::LinkLoad> columns_of(Of<models::LinkLoad>);

// "avg", "max" and "max_cum" of one stage.
Columns<models::Overload> columns_of(Of<models::Overload>);
// The metrics of every stage under their logged names.
struct OverloadMetrics {
  std::span<const models::Overload> stages;
  bool cumulates = true;  // else the cumulative factor means nothing
};
Columns<OverloadMetrics> columns_of(Of<OverloadMetrics>);

// The schema of a result of `command` ("validate --training") behind what every result has, by the name under
// which `moesim schema` prints it. Several of one name are a verb's kinds of results.
struct ResultSchema {
  using Make = std::function<nlohmann::ordered_json()>;
  ResultSchema(const std::string& name, const std::string& command, Make figures);
  // A whole schema.
  ResultSchema(const std::string& name, const Make& schema);
  static std::map<std::string, nlohmann::ordered_json> all();
};

// Adds the interpretation of the scenario's model (models/workload/model_summary.h) as "model" of the result;
// nothing where it has none.
void add_model(nlohmann::ordered_json& result, const models::Scenario& scenario);
template <nlohmann::ordered_json (*figures)()>
nlohmann::ordered_json with_model() {
  nlohmann::ordered_json schema = figures();
  schema["properties"]["model"]["$ref"] = "model-summary.schema.json";
  return schema;
}

// Formats "1234.5", as in tables.
std::string microseconds(double us);

}  // namespace moesim::tools
