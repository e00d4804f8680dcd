// A plan as the arguments of its framework, as text and JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

// Returns {"framework", "arguments": {name: value}, "text", "left_out": [...]}.
nlohmann::ordered_json job_arguments_json(const JobArguments& made, JobFramework framework);

// Returns a resolved scenario with one of its dispatchers, named as in answers.
models::Scenario with_dispatcher(const models::Scenario& scenario, const std::string& dispatcher);

// Returns the text of a plan's arguments, preceded by lines on what they leave out. Throws InputError for
// features that the framework lacks.
std::string plan_arguments_text(const models::Scenario& plan, JobFramework framework);

}  // namespace moesim::tools
