// How `replay` and sweeps over recordings ask: the options that say the question, from a command line or from
// an axis, and the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/hardware/rental.h"
#include "replay/run/forecast_recording.h"
#include "tools/moesim/questions/recordings.h"

namespace CLI {
class App;
}

namespace moesim::tools {

class ReplayQuestion {
 public:
  // `draws`: where nobody says.
  explicit ReplayQuestion(int draws) : draws_(draws) {}

  // Keep this object while the options are parsed.
  void declare(CLI::App& app);
  // Says one of the options by its name without dashes, as its flag would. Throws InputError for a value that
  // is none.
  void say(const std::string& name, const std::string& text);
  // Names that say() takes: of texts, and of whole numbers.
  static std::vector<std::string> text_names();
  static std::vector<std::string> number_names();

  // Throws InputError for names that do not exist.
  replay::RecordingQuestion question(std::uint64_t seed) const;
  models::PriceTable prices() const;
  const std::string& model() const { return job_.model; }
  // Reads the files that the options name, so that they are noted.
  void read_inputs() const;
  // Option and value of all that was said.
  std::vector<std::pair<std::string, std::string>> said() const;

 private:
  std::string cluster_, timing_ = "calibrated", prices_;
  JobOptions job_;
  int microbatches_ = 0, draws_;
};

// Answers, and holds the answer against what every forecast obeys. Throws InputError for a question that the
// recording cannot answer.
replay::RecordingForecast ask_recording(const Recordings& recordings, const replay::RecordingQuestion& q);

double tokens_per_s(const models::Forecast& forecast);  // all GPUs together

// In the currency of the prices; empty without prices, or where the tokens are unknown.
std::optional<double> cost_per_million_tokens(const models::Forecast& forecast,
                                              const models::Cluster& cluster,
                                              const models::PriceTable& prices);

}  // namespace moesim::tools
