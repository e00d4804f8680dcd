// Recordings as inputs of verbs: folders of CMD traces, read, interpreted, and recorded in the inputs of a
// result.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "replay/recording/steps.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/requested_job.h"
#include "replay/run/validate.h"
#include "tools/moesim/show/options.h"
#include "traces/recording.h"

namespace moesim::tools {

// Recordings of one job with their interpretation; steps point into the recordings, whose addresses are
// stable.
class Recordings {
 public:
  // Reads a folder (one pass) and interprets it.
  void add(const std::string& folder);

  const traces::Recording& recording(std::size_t i) const { return recordings_[i]; }
  const std::vector<replay::RecordedJob>& jobs() const { return jobs_; }
  std::size_t size() const { return jobs_.size(); }
  // Returns the warnings of all recordings in order, without repetitions.
  std::vector<std::string> warnings() const;

 private:
  std::deque<traces::Recording> recordings_;
  std::vector<replay::RecordedJob> jobs_;
};

// Returns why a replay of `recording`, at its own size and on the default cluster, would be refused; nullopt:
// it would not. Determined by interpreting its lines, and, if `whole`, by replaying them.
std::optional<std::string> replay_refusal(const traces::Recording& recording, bool whole);

// Returns the dispatching file beside a recording, in its folder or the one above; empty: none.
std::string routing_beside(const std::string& folder);

// Value that ignores such a file.
inline constexpr const char* kAsRecorded = "as-recorded";

// Value for the routing of the recording that a forecast is compared with (validate only).
inline constexpr const char* kMeasuredRouting = "measured";

// Changes to a recorded job that verbs offer.
struct JobOptions {
  std::string dispatcher;
  std::string routing;
  std::string model;
  std::string recorded_on;
  bool ranks_missing = false;
  std::map<std::string, std::int64_t> sizes;  // by option name; 0: not given

  void declare(CLI::App& app);
  // Sets an option by its name without dashes, as its flag would. Returns false for an unknown name.
  bool say(const std::string& name, const std::string& text);
  // Names of the text and size options for say().
  static std::vector<std::string> text_names();
  static std::vector<std::string> size_names();
  // Returns the request of these options for a cluster, "" for the default. Throws InputError for unknown
  // names.
  replay::JobRequest request(const std::string& cluster, std::uint64_t seed) const;
};

// Parses an integer within bounds. Throws InputError naming `what`.
std::int64_t whole_between(const std::string& what, const std::string& text, std::int64_t low,
                           std::int64_t high);

// Loads a model by name or file. Throws InputError for a model without experts, since recordings have
// experts.
models::Architecture mixture_named(const std::string& name_or_path);

// Invariants of every forecast of a recording, checked before it is shown, in addition to
// models/answers/invariants.h.

// Returns the first violated invariant in one clause; empty: none. Beyond the checks of any forecast, the
// parts of every rank and the causes add up to the iteration; means, waits and loads are finite and not
// negative.
std::string impossible(const replay::RecordingForecast& forecast);

// Checks a forecast against its measurement: finite, inside of its own interval.
std::string impossible(const replay::Validation& validation);

}  // namespace moesim::tools
