// `moesim validate --memory TABLE`: measured peaks of jobs against what the forecast says they hold, and
// whether jobs that ran are called fitting.
#pragma once

#include <string>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct MemoryValidation {
  std::string table;
  double max_error = 0;  // of the median absolute error of peaks; 0: none
  std::string detail;    // "causes": what the fullest stage of each job holds
};

// Prints the result; the exit code: 1 where the median is further off, or a job that ran is called unfit.
int validate_memory(const MemoryValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
