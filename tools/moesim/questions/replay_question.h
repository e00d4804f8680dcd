// The question of `replay` and of sweeps over recordings: its options, from a command line or an axis, and
// the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/hardware/rental.h"
#include "replay/run/forecast_recording.h"
#include "tools/moesim/questions/recordings.h"

namespace moesim::tools {

class ReplayQuestion {
 public:
  // `draws`: the default.
  explicit ReplayQuestion(int draws) : draws_(draws) {}

  // Declares the options; this object must outlive parsing.
  void declare(CLI::App& app);
  // Sets an option by its name without dashes, as its flag would. Throws InputError for an invalid value.
  void say(const std::string& name, const std::string& text);
  // Names of the text and integer options for say().
  static std::vector<std::string> text_names();
  static std::vector<std::string> number_names();

  // Throws InputError for unknown names.
  replay::RecordingQuestion question(std::uint64_t seed) const;
  models::PriceTable prices() const;
  const std::string& model() const { return job_.model; }
  // Reads the files that the options name, so that they are recorded.
  void read_inputs() const;
  // Returns option and value of all given options.
  std::vector<std::pair<std::string, std::string>> said() const;

 private:
  std::string cluster_, timing_ = "calibrated", prices_;
  JobOptions job_;
  int microbatches_ = 0, draws_;
};

// Answers and checks the answer's invariants. Throws InputError for a question that the recording cannot
// answer.
replay::RecordingForecast ask_recording(const Recordings& recordings, const replay::RecordingQuestion& q);

double tokens_per_s(const models::Forecast& forecast);  // all GPUs together

// In the currency of the prices; nullopt without prices, or where the tokens are unknown.
std::optional<double> cost_per_million_tokens(const models::Forecast& forecast,
                                              const models::Cluster& cluster,
                                              const models::PriceTable& prices);

}  // namespace moesim::tools
