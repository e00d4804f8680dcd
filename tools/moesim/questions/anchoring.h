// --measured, --log and --tolerance: what a run of one's own took and what loss is accepted, of every verb
// that compares dispatchers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/answers/anchor.h"
#include "models/answers/answer.h"
#include "tools/moesim/show/common_options.h"

namespace CLI {
class App;
}

namespace moesim::tools {

class Anchoring {
 public:
  // Keep this object while the options are parsed. `tolerance`: whether the verb recommends a dispatcher.
  void declare(CLI::App& app, bool tolerance = true);
  // What the options would say.
  void say_measured(std::string times) { measured_ = std::move(times); }
  void say_tolerance(const std::string& share);

  bool measured() const { return !measured_.empty() || !log_.empty(); }
  double tolerance() const { return tolerance_; }
  // The times of a resolved scenario's run. Throws InputError for what is no time, and for a log without
  // steps.
  std::vector<models::Measured> of(const models::Scenario& scenario) const;
  // Throws InputError where a time was given that `question` has no use for.
  void refuse_measured(const std::string& question) const;

 private:
  std::string measured_, log_;
  double tolerance_ = models::Decision::kTolerance;
};

nlohmann::ordered_json anchor_json(const models::Anchor& anchor);
// What the run told: how the forecasts changed and which numbers moved; or why it cannot be explained.
std::string anchor_text(const models::Comparison& anchored);
// The result where the forecast does not explain the run.
nlohmann::ordered_json unexplained_json(const char* verb, const models::Comparison& asked,
                                        const CommonOptions& common);
// Prints the run instead of an answer where the forecast does not explain it; false where it does.
bool tells_unexplained(const char* verb, const models::Comparison& asked, const CommonOptions& common);

}  // namespace moesim::tools
