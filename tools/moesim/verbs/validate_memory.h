// `moesim validate --memory TABLE`: measured memory peaks of jobs against their forecasts, and whether jobs
// that ran are forecast to fit.
#pragma once

#include <string>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct MemoryValidation {
  std::string table;
  double max_error = 0;  // limit on the median absolute error of peaks; 0: none
  std::string detail;    // "causes": memory of each job's fullest stage by cause
};

// Prints the result; returns the exit code, 1 where the median error exceeds the limit or a job that ran does
// not fit.
int validate_memory(const MemoryValidation& options, const CommonOptions& common);

}  // namespace moesim::tools
