// Recordings as verbs take them: folders of CMD traces, read, interpreted, and named in the inputs of a
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
#include "replay/run/requested_job.h"
#include "traces/recording.h"

namespace CLI {
class App;
}

namespace moesim::tools {

// Recordings of one job and what they mean; steps point into the recordings, which stay where they are.
class Recordings {
 public:
  // Reads a folder (one pass) and interprets it.
  void add(const std::string& folder);

  const traces::Recording& recording(std::size_t i) const { return recordings_[i]; }
  const std::vector<replay::RecordedJob>& jobs() const { return jobs_; }
  std::size_t size() const { return jobs_.size(); }
  // Of all recordings, in order, without repetitions.
  std::vector<std::string> warnings() const;

 private:
  std::deque<traces::Recording> recordings_;
  std::vector<replay::RecordedJob> jobs_;
};

// Why a replay of `recording`, at its own size and on the default cluster, would be refused; nullopt: it
// would not. Finds out by replaying it.
std::optional<std::string> replay_refusal(const traces::Recording& recording);

// The dispatching file that lies beside a recording, in its folder or the one above; empty: none does.
std::string routing_beside(const std::string& folder);

// Leaves such a file out.
inline constexpr const char* kAsRecorded = "as-recorded";

// The routing of the recording that a forecast is held against (validate only).
inline constexpr const char* kMeasuredRouting = "measured";

// What verbs offer to change about a recorded job.
struct JobOptions {
  std::string dispatcher;
  std::string routing;
  std::string model;
  std::string recorded_on;
  bool ranks_missing = false;
  std::map<std::string, std::int64_t> sizes;  // by option name; 0: not given

  void declare(CLI::App& app);
  // Says one of them by its name without dashes, as its flag would. False for one that there is not.
  bool say(const std::string& name, const std::string& text);
  // Names of the texts and of the sizes that say() takes.
  static std::vector<std::string> text_names();
  static std::vector<std::string> size_names();
  // The request of these options for a cluster, "" for the default. Throws InputError for names that do not
  // exist.
  replay::JobRequest request(const std::string& cluster, std::uint64_t seed) const;
};

// A whole number in these bounds. Throws InputError that names `what`.
std::int64_t whole_between(const std::string& what, const std::string& text, std::int64_t low,
                           std::int64_t high);

// A model by name or file that has experts, as what a recording is of has. Throws InputError for another.
models::Architecture mixture_named(const std::string& name_or_path);

}  // namespace moesim::tools
