// `moesim validate --training TABLE`: published training steps against their forecasts.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct TrainingValidation {
  std::vector<std::string> tables;
  int draws = 16;
  double max_error = 0;    // limit on the median absolute error; 0: none
  std::string detail;      // "breakdown": parts of each step
  bool leave_out = false;  // forecasts each publication without the constants that its rows determine
};

// Prints the result; returns the exit code.
int validate_training(const TrainingValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
