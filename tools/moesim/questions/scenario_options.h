// The command line of a scenario: a file, and an option for every field that has one
// (models/workload/fields.h).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/workload/scenario.h"
#include "tools/moesim/jobs/arguments.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// Declares --with.
void declare_with(CLI::App& app, std::vector<std::string>& with);

class ScenarioOptions {
 public:
  // Declares the file and the options, in the groups of the table. Keep this object while they are parsed.
  void declare(CLI::App& app);
  // The same without the file, which take_file() says.
  void declare_fields(CLI::App& app);
  // `framework`: whose arguments the file holds; nullopt: a scenario, or found out by name and content.
  // `words`: arguments of a script, or in the place of a file.
  void take_file(const std::string& file, std::optional<JobFramework> framework,
                 const std::vector<std::string>& words = {});

  struct Loaded {
    models::Scenario scenario;
    std::optional<Job> job;  // that it came of
  };
  // Returns the scenario of the file with what the options change, its dispatchers named, not resolved.
  // Throws InputError for values that are none, and for what the scope does not use.
  Loaded load(const CommonOptions& common) const;
  models::Scenario scenario(const CommonOptions& common) const { return load(common).scenario; }

 private:
  std::optional<Job> job() const;

  std::string file_;
  std::optional<JobFramework> framework_;
  std::vector<std::string> words_, with_;
  std::map<std::size_t, std::string> texts_;  // of the fields that were given, by their index
};

}  // namespace moesim::tools
