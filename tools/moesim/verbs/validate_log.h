// `moesim validate --log FILE`: the steps that a training job logged against the forecast of the same
// arguments.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct LogValidation {
  std::string log;
  std::string job;  // arguments or a scenario; empty: those that the log holds
  std::vector<std::string> with;
  std::string cluster;
  int draws = 48;
  double max_error = 0;  // of the median step; 0: none
};

// Prints the result; the exit code: 1 where the median is further off.
int validate_log(const LogValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
