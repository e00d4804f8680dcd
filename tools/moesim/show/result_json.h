// Shared parts of several verbs' results.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

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

// Returns a number, or null for nullopt.
nlohmann::ordered_json or_null(const std::optional<double>& value);

Columns<models::Estimate> columns_of(Of<models::Estimate>);
nlohmann::ordered_json estimate_json(const models::Estimate& estimate);

// Returns the nonzero parts of a time, by category.
nlohmann::ordered_json breakdown_json(const std::array<double, sim::kCategories>& breakdown_us);

// A link with its traffic under timing `flow`.
Columns<models::LinkLoad> columns_of(Of<models::LinkLoad>);
nlohmann::ordered_json link_json(const models::LinkLoad& link);

// "avg", "max" and "max_cum" of one stage.
Columns<models::Overload> columns_of(Of<models::Overload>);
nlohmann::ordered_json overload_json(const models::Overload& overload);
// The metrics of every stage under their logged names.
struct OverloadMetrics {
  std::span<const models::Overload> stages;
  bool cumulates = true;  // else the cumulative factor means nothing
};
Columns<OverloadMetrics> columns_of(Of<OverloadMetrics>);
nlohmann::ordered_json overload_metrics_json(std::span<const models::Overload> stages);

// The schema of a result of `verb`: its figures behind those that every result has.
nlohmann::ordered_json result_schema(std::string_view verb, std::string_view title,
                                     nlohmann::ordered_json figures);

// Adds the interpretation of the scenario's model (models/workload/model_summary.h) as "model" of the result;
// nothing where it has none.
void add_model(nlohmann::ordered_json& result, const models::Scenario& scenario);

// Formats "1234.5", as in tables.
std::string microseconds(double us);

}  // namespace moesim::tools
