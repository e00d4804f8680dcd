// Least-loaded redirection (docs/spec.md 2.15): rows above a rank's limit go to the least loaded ranks, for
// one microbatch, together with the weights of their experts.
#pragma once

#include <cstdint>
#include <vector>

#include "models/routing/routing.h"

namespace moesim::models {

struct RedirectionLimits {
  double limit = 1.1;            // on a rank's rows, in balanced shares
  std::int64_t min_rows = 1024;  // rows of an expert that another rank takes at least
  double threshold = 0;          // rows of the busiest rank in balanced shares below which nothing is moved
};

// A routing over `slots` places per rank: first its own experts in order, then copies of others.
struct Redirection {
  Routing routing;
  int slots = 0;
  // [ranks][ranks]: number of the first rank's experts that the second also computes
  std::vector<std::int64_t> copies;
  std::vector<std::int64_t> foreign;  // copies of other ranks' experts, by rank
};

// Processes experts by rows, largest first. Rows that exceed the limit of the expert's own rank go to the
// least loaded rank as far as they fit, then to the next; they stay where no rank can take `min_rows`. Rows
// are in rank order: the first stay at home. `routing` has one source rank for each of `ranks`, which divides
// its experts.
Redirection least_loaded(const Routing& routing, int ranks, const RedirectionLimits& limits);

}  // namespace moesim::models
