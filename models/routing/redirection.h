// Least-loaded redirection (docs/spec.md 2.15): rows above what a rank should compute go to the ranks with
// the least load, for one microbatch, and the weights of their experts with them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/routing/routing.h"

namespace moesim::models {

struct RedirectionLimits {
  double limit = 1.1;            // of a rank's rows, in balanced shares
  std::int64_t min_rows = 1024;  // of an expert that another rank takes at once
  double threshold = 0;          // of the busiest rank's rows in balanced shares; below, nothing is moved
};

// A routing over `slots` places of every rank: its own experts in their order, then those of others.
struct Redirection {
  Routing routing;
  int slots = 0;
  std::vector<std::int64_t> copies;   // [ranks][ranks]: experts of the first that the second computes, too
  std::vector<std::int64_t> foreign;  // by rank
};

// Experts are taken by their rows, most first. What their own rank can no longer compute within the limit
// beside its other experts goes to the rank with the least load, as much as fits there, and so on; it stays
// where no rank can take `min_rows` of it. Rows are in the order of their ranks: the first stay at home.
// `routing` has a source rank for each of `ranks`, which divides its experts.
Redirection least_loaded(const Routing& routing, int ranks, const RedirectionLimits& limits);

}  // namespace moesim::models
