// A scenario file whose values can be changed by path before it is read as a scenario.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/workload/scenario.h"
#include "tools/moesim/questions/scenario_paths.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

class ScenarioDocument {
 public:
  // Reads and checks a scenario file; --seed stands in the place of its seed. Throws InputError with
  // file:line. A job's file (tools/moesim/jobs/load_job.h) is one, too; `with`: what is added to its
  // arguments.
  static ScenarioDocument read(const std::filesystem::path& file, const CommonOptions& common,
                               const std::vector<std::string>& with = {});
  static ScenarioDocument from_json(nlohmann::json document, std::string origin);

  // Sets one value. What a file gives by name (a model, a cluster, a routing) or in a short form becomes an
  // object first, so that the rest of it stays. Throws InputError where there is nothing to set it in.
  void set(const ScenarioPath& path, const nlohmann::json& value);

  // The scenario, not resolved, its dispatchers named. Messages name the file and the path.
  models::Scenario scenario() const;
  // Only what stands under one key of the file; the rest is as in an empty file.
  models::Scenario part(const std::string& key) const;

  const nlohmann::json& document() const { return document_; }
  const std::string& origin() const { return origin_; }

 private:
  void spell_out(std::string_view prefix);
  void set_model(std::string_view key, const nlohmann::json& value);
  void set_cluster(std::string_view key, const nlohmann::json& value);
  void set_routing(std::string_view key, const nlohmann::json& value);
  void set_dispatcher(std::string_view key, const nlohmann::json& value);
  void set_price(std::string_view key, const nlohmann::json& value);

  nlohmann::json document_ = nlohmann::json::object();
  std::string origin_;
  bool of_job_ = false;               // what its scope does not use was said by no user
  std::vector<std::string> remarks_;  // of the job's arguments
};

// Whether what stands in the place of a scenario file is the scenario itself, as JSON.
bool is_scenario_text(std::string_view file);
// Reads a scenario file, or the text in its place. Throws InputError.
JsonNode read_scenario(const std::string& file);

// Throws InputError for a field of `scenario` that was given and that its scope does not use, at its line in
// the file where it stands in it.
void refuse_unused(const models::Scenario& scenario, const std::filesystem::path& file);

}  // namespace moesim::tools
