// `moesim validate --forecast --measured` and `--all`: error of a forecast against a measured recording, in
// total and operation by operation.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct RecordingValidation {
  std::vector<std::string> forecast;
  std::string measured;
  std::string all, only;  // a folder of recordings, and which of them
  std::string cluster = "echo-h800x2";
  RecordingOptions job;
  std::string max_error;
  std::string timeline, report;
  TimelineOptions shown;
  int microbatches = 0;  // 0: as measured
  int draws = 32;
  bool rescale = false;
};

// Prints the result; returns the exit code, 1 where an iteration is further off than the limit.
int validate_recordings(const RecordingValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
