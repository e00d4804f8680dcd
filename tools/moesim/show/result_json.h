// Pieces of results that several verbs write.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moesim::models {
struct Estimate;
struct LinkLoad;
struct Overload;
struct Scenario;
}  // namespace moesim::models

namespace moesim::tools {

// {"value", "low", "high"}.
nlohmann::ordered_json estimate_json(const models::Estimate& estimate);

// A link and what it carried, under timing `flow`.
nlohmann::ordered_json link_json(const models::LinkLoad& link);

// {"avg", "max", "max_cum"} of one stage.
nlohmann::ordered_json overload_json(const models::Overload& overload);
// What every stage logs, under the names of the metrics.
nlohmann::ordered_json overload_metrics_json(std::span<const models::Overload> stages);

// What was understood of the scenario's model (models/workload/model_summary.h), as "model" of the result;
// nothing where it has none.
void add_model(nlohmann::ordered_json& result, const models::Scenario& scenario);

// "1234.5", as tables show them.
std::string microseconds(double us);

}  // namespace moesim::tools
