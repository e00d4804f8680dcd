// --measured, --log and --tolerance: times of the user's own run and the accepted loss, for every verb that
// compares dispatchers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/answers/anchor.h"
#include "models/answers/answer.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

class Anchoring {
 public:
  // Declares the options; this object must outlive parsing. `tolerance`: whether the verb recommends a
  // dispatcher.
  void declare(CLI::App& app, bool tolerance = true);
  // Set the values that the options would set.
  void say_measured(std::string times) { measured_ = std::move(times); }
  void say_tolerance(const std::string& share);

  bool measured() const { return !measured_.empty() || !log_.empty(); }
  double tolerance() const { return tolerance_; }
  // Returns the measured times for a resolved scenario. Throws InputError for invalid times, and for a log
  // without steps.
  std::vector<models::Measured> of(const models::Scenario& scenario) const;
  // Throws InputError where a time was given that `question` cannot use.
  void refuse_measured(const std::string& question) const;

 private:
  std::string measured_, log_;
  double tolerance_ = models::Decision::kTolerance;
};

// Describes how the measurements changed the forecasts and parameters, or why they cannot be explained.
std::string anchor_text(const models::Comparison& anchored);
// Returns the result where the forecast does not explain the run.
nlohmann::ordered_json unexplained_json(const char* verb, const models::Comparison& asked,
                                        const CommonOptions& common);
nlohmann::ordered_json schema_of_unexplained();
// Prints the run instead of an answer where the forecast does not explain it; returns false where it does.
bool print_unexplained(const char* verb, const models::Comparison& asked, const CommonOptions& common);

// The measurement that would settle an open choice.

// Sets the measurement that saves most, if any. Takes about as long as the answer, which was computed with
// `options`; where its draws are too few for any measurement, as long as an answer with kPlanDraws.
void name_measurement(models::Comparison& comparison, models::AnswerOptions options);

}  // namespace moesim::tools
