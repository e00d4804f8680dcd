// The question of `plan` and of sweeps of plans: options besides the scenario, from a command line or an
// axis.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/training_run.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/options.h"

namespace moesim::tools {

// Section of its options in --help.
inline constexpr const char* kQuestionGroup = "Question";

class PlanQuestion {
 public:
  // Declares the options; this object must outlive parsing.
  void declare(CLI::App& app);
  // Returns the options that can be an axis: those of one number or word.
  static std::vector<ScenarioPath> axes();
  // Sets an option by its path, as its flag would. Returns false for an unknown path.
  bool say(const std::string& path, const std::string& text);

  // Returns the question about a training step with an open plan; `batch` receives the source of its global
  // batch. Throws InputError for missing values, and for a scenario that is not a training.
  models::RunQuestion question(const Base& base, std::string& batch) const;
  // Reads the files that the options name, so that they are recorded.
  void read_inputs() const;
  // Returns option and value of all given options.
  std::vector<std::pair<std::string, std::string>> said() const;
  bool ranks_by_time() const { return by_ == "time"; }

  const std::string& tokens() const { return tokens_; }
  // As framework_version() has it.
  int version() const;
  // Returns the scenario's prices, completed from public lists.
  static models::PriceTable prices(const models::Scenario& scenario);
  // Takes rents from public lists where none was given, but power is added to a rent or other machines are
  // bought.
  static void take_listed_rent(models::Scenario& scenario);

 private:
  std::string tokens_, clusters_, budget_, deadline_, by_, power_, version_;
  int draws_ = 16;
  std::int64_t most_ = models::RunQuestion{}.most;
};

}  // namespace moesim::tools
