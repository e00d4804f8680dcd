// The command line of a scenario: a file, and an option for every field that has one
// (models/workload/fields.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "models/workload/scenario.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

class ScenarioOptions {
 public:
  // Declares the file and the options, in the groups of the table. Keep this object while they are parsed.
  void declare(CLI::App& app);

  // Returns the scenario of the file with what the options change, its dispatchers named, not resolved.
  // Throws InputError for values that are none, and for what the scope does not use.
  models::Scenario scenario(const CommonOptions& common) const;

 private:
  std::string file_;
  std::map<std::size_t, std::string> texts_;  // of the fields that were given, by their index
};

}  // namespace moesim::tools
