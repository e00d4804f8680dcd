// What is missing, suspicious or wrong in a recording.
#pragma once

#include <string>
#include <vector>

#include "traces/recording.h"
#include "traces/recording_facts.h"

namespace moesim::traces {

enum class Severity {
  kNote,     // how to read it: known habits of the recorder
  kWarning,  // numbers to doubt
  kProblem   // a replay would stumble or be wrong
};
std::string_view to_string(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  SourcePlace place;  // the first line concerned; an empty file name when it is the recording as a whole
  std::string text;
};

// Problems first, then warnings, then notes; within each in the order of the checks.
std::vector<Finding> examine(const Recording& recording, const RecordingFacts& facts);

}  // namespace moesim::traces
