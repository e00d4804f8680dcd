#include "tools/moesim/show/result_inputs.h"

#include <nlohmann/json.hpp>

#include "base/files_read.h"
#include "models/question/question.h"

namespace moesim::tools {

nlohmann::ordered_json describe_inputs(const CommonOptions& options) {
  nlohmann::ordered_json inputs;
  inputs["command"] = options.command_line;
  inputs["seed"] = options.seed;
  inputs["files"] = files_read();
  return inputs;
}

nlohmann::ordered_json describe_inputs(const CommonOptions& options, const models::Scenario& scenario) {
  nlohmann::ordered_json inputs = describe_inputs(options);
  inputs["scenario"] = models::to_json(scenario);
  inputs["settings"] = models::settings_json(scenario);
  return inputs;
}

nlohmann::ordered_json files_read() {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [path, hash] : FilesRead::hashes()) files[path] = {{"sha256", hash}};
  return files;
}

}  // namespace moesim::tools
