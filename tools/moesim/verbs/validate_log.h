// `moesim validate --log FILE`: the logged steps of a training job against the forecast of the same
// arguments.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct LogValidation {
  std::string log;
  std::string job;  // arguments or a scenario; empty: those in the log
  std::vector<std::string> with;
  std::string cluster;
  int draws = 48;
  double max_error = 0;  // limit on the error of the median step; 0: none
};

// Prints the result; returns the exit code, 1 where the median error exceeds the limit.
int validate_log(const LogValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
