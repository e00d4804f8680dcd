// Recordings as inputs of verbs: folders of CMD traces, read, interpreted, and recorded in the inputs of a
// result.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/recording/steps.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/run_summary.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/output.h"
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

// Throws InputError at `folder` where a size of its job's model or sequence is another than `other` says, as far as
// both names say one. `where`: the end of the sentence.
void refuse_other_sizes(const std::string& folder, const traces::NamedTopology& sizes,
                        const traces::NamedTopology& other, const std::string& where);

// Returns why a replay of `recording`, at its own size and on the default cluster, would be refused; nullopt:
// it would not. Determined by interpreting its lines, and, if `whole`, by replaying them.
std::optional<std::string> replay_refusal(const traces::Recording& recording, bool whole);

// Value of routing and dispatcher for the recorded one, whatever stands beside the recording.
inline constexpr const char* kAsRecorded = "as-recorded";

// Value for the routing of the recording that a forecast is compared with (validate only).
inline constexpr const char* kMeasuredRouting = "measured";

// Declares --recorded-on, of verbs that take a recording as well as a scenario, too.
void declare_recorded_on(CLI::App& app, std::string& cluster);

// The options of a question of recordings: settings of a scenario in place of the recorded ones, and what only
// recordings have.
class RecordingOptions {
 public:
  // `draws`: the default.
  explicit RecordingOptions(int draws = 0) : draws_(draws) {}
  // Of a verb that takes scenarios, too. `settings`: what its user said beside the recording.
  RecordingOptions(QuestionOptions settings, int draws) : settings_(std::move(settings)), draws_(draws) {}

  // Declares the options; this object must outlive parsing.
  void declare(CLI::App& app);
  // Likewise of a verb that has its own for the machine and the batch.
  void declare_job(CLI::App& app);
  // Sets an option by its name without dashes, or a setting by its path, as its flag would.
  void say(const std::string& name, const std::string& text);
  // Returns option and value of all given options.
  std::vector<std::pair<std::string, std::string>> said() const;
  bool says_model() const { return !settings_.said("model").empty(); }

  // Returns the settings of recordings with the options in their place.
  models::Question over(models::Question recorded, const CommonOptions& common) const {
    return settings_.over(std::move(recorded), common);
  }
  // Returns the question of these recordings. `asked`: over(), or with further settings. `measured`: a recording
  // of the job that is forecast, for its routing; then no file beside the recording is used. Throws InputError
  // for settings that a replay does not take.
  replay::RecordingQuestion question(const Recordings& recordings, models::Question asked,
                                     const Recordings* measured = nullptr) const;
  // Reads the files that the options name, so that they are recorded. Throws InputError for invalid values.
  void read_inputs(const CommonOptions& common) const;

 private:
  QuestionOptions settings_;
  std::string timing_ = "calibrated", recorded_on_, routing_;  // the last: one of the two values above
  bool ranks_missing_ = false;
  int draws_;
};

// Options of recordings that are no settings of a scenario, and can be axes.
inline constexpr std::array<std::string_view, 2> kRecordingOptions{"timing", "recorded-on"};
inline bool is_recording_option(std::string_view name) {
  return std::ranges::find(kRecordingOptions, name) != kRecordingOptions.end();
}
// Finds the axis of such an option. Throws InputError with the nearest name for another one.
models::ScenarioPath recording_axis(std::string_view text);

// Returns the settings of recordings of one job, each of origin `recording`.
models::Question question_of(const Recordings& recordings);

// Answers and checks the answer's invariants. Throws InputError for a question that the recording cannot
// answer.
replay::RecordingForecast ask_recording(const Recordings& recordings,
                                        const replay::RecordingQuestion& question);

// The times of a rank, described once: the letter is that of the bars.
struct RankTime {
  const char *key, *head;
  char letter;
  Ink ink;
  sim::Time sim::RankSummary::*time;
};
inline constexpr std::array<RankTime, 5> kRankTimes{{
    {"busy_us", "computing", 'C', Ink::kBlue, &sim::RankSummary::busy},
    {"exposed_comm_us", "transfer", 'T', Ink::kYellow, &sim::RankSummary::exposed_comm},
    {"straggler_wait_us", "waiting", 'w', Ink::kGrey, &sim::RankSummary::straggler_wait},
    {"bubble_us", "bubble", 'b', Ink::kSoft, &sim::RankSummary::bubble},
    {"host_us", "host", 'H', Ink::kPurple, &sim::RankSummary::host},
}};

// The figures of the whole job, and of its experts' ranks.
Columns<replay::RecordingForecast> job_columns();
Columns<replay::RecordedOverload> columns_of(Of<replay::RecordedOverload>);

double tokens_per_s(const models::Forecast& forecast);  // all GPUs together

// In the currency of the question's prices; nullopt without prices, or where the tokens are unknown.
std::optional<double> cost_per_million_tokens(const replay::RecordingForecast& forecast);

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
