// Output of `moesim plan` for a whole training.
#pragma once

#include <string>
#include <vector>

#include "models/answers/training_run.h"
#include "tools/moesim/show/columns.h"

namespace moesim::tools {

// Returns the answer in a sentence, the plans, the frontier and the worth of upgrades; at most 100 columns.
// `batch`: source of the global batch; `top`: plans shown for each precision.
std::string training_run_text(const models::RunQuestion& question, const models::RunAnswer& answer,
                              const std::string& batch, int top);
// The figures of a plan of `answer`, without which its "group" is not looked at.
Columns<models::PricedTraining> plan_figures(const models::RunAnswer* answer = nullptr);
// Returns the command that asks about the plan's step again, on one line.
std::string plan_command(const models::PricedTraining& plan);
std::string training_run_csv(const models::RunAnswer& answer);

// Formats a training on one plan: "100 B tokens: 3.2 days (2.9 to 3.6) on 32 GPUs, $5.1 k (4.6 to 5.8)".
std::string training_text(const models::RunQuestion& question, const models::PricedTraining& run);

// Adds the answer, "plans", "frontier", "upgrades", what was tried, and the assumptions.
void add_training_run(nlohmann::ordered_json& result, const models::RunQuestion& question,
                      const models::RunAnswer& answer, const std::string& batch);

// Returns the warnings of the best plan.
std::vector<std::string> training_run_warnings(const models::RunAnswer& answer);

}  // namespace moesim::tools
