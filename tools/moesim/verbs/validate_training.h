// `moesim validate --training TABLE`: published training steps against their forecasts.
#pragma once

#include <string>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct TrainingValidation {
  std::string table;
  int draws = 16;
  double max_error = 0;  // of the median absolute error; 0: none
  std::string detail;    // "breakdown": parts of each step
};

// Prints the result; the exit code.
int validate_training(const TrainingValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
