// A whole training, as `moesim plan` prints it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/answers/training_run.h"
#include "tools/moesim/show/cell.h"

namespace moesim::tools {

// The answer in a sentence, the plans, the frontier and what upgrades are worth; at most 100 columns.
// `batch`: where the global batch comes from; `top`: plans shown of each precision.
std::string training_run_text(const models::RunQuestion& question, const models::RunAnswer& answer,
                              const std::string& batch, int top);
// A column of a plan in a table.
struct PlanColumn {
  const char* name;
  Cell (*cell)(const models::RunPlan&);
  bool text = false;
};
// The sizes, options, days, cost and probabilities of a plan.
std::span<const PlanColumn> plan_columns();
// The command that asks about the plan's step again, on one line.
std::string plan_command(const models::RunPlan& plan);
std::string training_run_csv(const models::RunAnswer& answer);

// A training on one plan: "100 B tokens: 3.2 days (2.9 to 3.6) on 32 GPUs, $5.1 k (4.6 to 5.8)".
std::string training_text(const models::RunQuestion& question, const models::RunPlan& run);

// Adds the answer, "plans", "frontier", "upgrades", what was tried, and what all of it rests on.
void add_training_run(nlohmann::ordered_json& result, const models::RunQuestion& question,
                      const models::RunAnswer& answer, const std::string& batch);

// Of the best plan.
std::vector<std::string> training_run_warnings(const models::RunAnswer& answer);

}  // namespace moesim::tools
