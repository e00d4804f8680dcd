// How `plan` and sweeps of plans ask: what is said beside the scenario, from a command line or from an axis.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/training_run.h"
#include "tools/moesim/questions/ask.h"

namespace CLI {
class App;
}

namespace moesim::tools {

// Of its options, in --help.
inline constexpr const char* kQuestionGroup = "Question";

class PlanQuestion {
 public:
  // Keep this object while the options are parsed.
  void declare(CLI::App& app);
  // What can be an axis: options that are one number or word.
  static std::vector<ScenarioPath> axes();
  // Says one of them by its path, as its flag would. False for one that there is not.
  bool say(const std::string& path, const std::string& text);

  // The question about a training step whose plan is open; `batch`: where its global batch comes from, for
  // people. Throws InputError for what is missing, and for a scenario that is no training.
  models::RunQuestion question(const Base& base, std::string& batch) const;
  // Reads the files that the options name, so that they are noted.
  void read_inputs() const;
  // Option and value of all that was said.
  std::vector<std::pair<std::string, std::string>> said() const;
  bool ranks_by_time() const { return by_ == "time"; }

  const std::string& tokens() const { return tokens_; }
  // The scenario's, and those of public lists for GPUs that it does not price.
  static models::PriceTable prices(const models::Scenario& scenario);
  // Takes the rents of public lists where power is counted beside a rent, or others are bought, and nobody
  // said one.
  static void take_listed_rent(models::Scenario& scenario);

 private:
  std::string tokens_, clusters_, budget_, deadline_, by_;
  int draws_ = 16;
  std::int64_t most_ = models::RunQuestion{}.most;
};

}  // namespace moesim::tools
