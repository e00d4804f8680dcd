// Findings about a recording: missing, suspicious or wrong parts, apart from all that a replay refuses anyhow.
#pragma once

#include <string>
#include <vector>

#include "traces/recording.h"
#include "traces/recording_facts.h"

namespace moesim::traces {

enum class Severity {
  kNote,     // known habits of the recorder, and how to read them
  kWarning,  // doubtful numbers
  kProblem   // a replay would fail or be wrong
};
std::string_view to_string(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  SourcePlace place;  // the first line concerned; empty file name for the recording as a whole
  std::string text;
};

// Returns problems first, then warnings, then notes; within each in the order of the checks.
std::vector<Finding> examine(const Recording& recording, const RecordingFacts& facts);

}  // namespace moesim::traces
