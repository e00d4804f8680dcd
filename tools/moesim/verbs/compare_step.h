// `moesim compare --scope step`: dispatchers side by side in a whole training step, forecast without any
// recording.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/step/step_forecast.h"
#include "models/workload/scenario.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// The exit code.
int compare_step(models::Scenario scenario, int draws, const CommonOptions& common);

nlohmann::ordered_json step_json(const models::StepForecast& forecast);

}  // namespace moesim::tools
