// The answer of `moesim replay`: for people (replay_text.cc) and for programs (replay_json.cc).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "replay/run/forecast_recording.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

struct ReplayOptions {
  std::vector<std::string> folders;
  RecordingOptions question{models::AnswerOptions{}.draws};
  std::optional<RecordingOptions> before;  // whatif: the question without its changes
  std::string timeline, report;
  TimelineOptions shown;
  bool explain = false;
  double tolerance = models::Decision::kTolerance;  // of a choice between dispatchers
};
// Answers `replay`, and `whatif` and `compare` of a recording: a question of several dispatchers compares them.
int run_replay(const ReplayOptions& options, const CommonOptions& common);

// Prints the answer; `explain`: all ranks and operations, the critical path and the effects, too.
void print_replay(const replay::RecordingForecast& answer, const replay::Topology& recorded, bool explain);

// Returns a row per rank for programs: the iteration is on every row.
std::string rank_csv(const replay::RecordingForecast& answer);

// `model`: adds the one that the user named for a recording, which itself contains only sizes; `effects`: adds
// their list.
nlohmann::ordered_json replay_json(const replay::RecordingForecast& answer,
                                   const nlohmann::ordered_json& inputs, bool model, bool effects);

}  // namespace moesim::tools
