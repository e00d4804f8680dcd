// Shared parts of several verbs' results.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/graph/task_graph.h"

namespace moesim::models {
struct Estimate;
struct LinkLoad;
struct Overload;
struct Scenario;
}  // namespace moesim::models

namespace moesim::tools {

// Returns a number, or null for nullopt.
nlohmann::ordered_json or_null(const std::optional<double>& value);

// {"value", "low", "high"}.
nlohmann::ordered_json estimate_json(const models::Estimate& estimate);

// Returns the nonzero parts of a time, by category.
nlohmann::ordered_json breakdown_json(const std::array<double, sim::kCategories>& breakdown_us);

// Returns a link with its traffic under timing `flow`.
nlohmann::ordered_json link_json(const models::LinkLoad& link);

// {"avg", "max", "max_cum"} of one stage.
nlohmann::ordered_json overload_json(const models::Overload& overload);
// Returns the metrics of every stage under their logged names.
nlohmann::ordered_json overload_metrics_json(std::span<const models::Overload> stages);

// Adds the interpretation of the scenario's model (models/workload/model_summary.h) as "model" of the result;
// nothing where it has none.
void add_model(nlohmann::ordered_json& result, const models::Scenario& scenario);

// Formats "1234.5", as in tables.
std::string microseconds(double us);

}  // namespace moesim::tools
