// `moesim whatif SCENARIO --best parallel,dispatcher,recompute`: the best legal plans of a scenario's model
// on its cluster.
#pragma once

#include <cstdint>
#include <string>

#include "models/answers/plan_search.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

struct WhatifBest {
  std::string axes;       // "parallel,dispatcher,recompute,...", any of them
  std::string under;      // "memory", or "" for no limit
  std::string arguments;  // a framework: prints the best plan as its arguments
  int top = 10;
  int draws = 16;
  std::int64_t most = models::kMostForecasts;
};

// Prints the plans and returns the exit code. Throws InputError for an unknown axis and where no plan is
// legal.
int whatif_best(const Base& base, const WhatifBest& options, const CommonOptions& common);

}  // namespace moesim::tools
