// `moesim compare --scope step`: dispatchers side by side in a whole training step, forecast without any
// recording.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "models/step/step_forecast.h"
#include "models/workload/scenario.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// Options of the training plan that scope step adds to compare (and to whatif).
struct StepOptions {
  std::string precision, schedule, launch, overlap;

  void declare(CLI::App& app);
  // Changes the scenario's training plan. Throws InputError with the nearest name.
  void apply(models::Scenario& scenario) const;
};

// The exit code.
int compare_step(models::Scenario scenario, int draws, const CommonOptions& common);

nlohmann::ordered_json step_json(const models::StepForecast& forecast);
// {"model", "parallel", "training", ...}: what it takes to run the scenario again.
nlohmann::ordered_json step_scenario_json(const models::Scenario& scenario);

}  // namespace moesim::tools
