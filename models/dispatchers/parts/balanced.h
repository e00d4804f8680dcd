// Online balancing around a dispatcher (docs/spec.md 2.15): experts are copied to other ranks, and rows go to
// the copies. `balance=eplb:slots=N` fills N slots with copies of the busiest experts, which stay;
// `balance=least-loaded:limit=1.1:min_rows=1024:threshold=0` moves rows and weights anew in every pass.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/dispatchers/dispatcher.h"
#include "models/routing/routing.h"

namespace moesim::models {

// Least-loaded redirection (docs/spec.md 2.15): rows above a rank's limit go to the least loaded ranks, for
// one microbatch, together with the weights of their experts.

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

inline constexpr std::string_view kBalanceOption = "balance";

// Wraps `inner` in the balancing that the options ask for; returns `inner` where they ask for none. Throws
// InputError for a dispatcher whose experts cannot move.
std::unique_ptr<Dispatcher> balanced(std::unique_ptr<Dispatcher> inner, DispatcherOptions& options);

// Returns the same dispatcher without its balancing; nullopt where it has none.
std::optional<DispatcherSpec> without_balance(const DispatcherSpec& spec);

// Returns whether an operation of a program exists only for the balancing.
bool pays_for_balance(const Op& op);

}  // namespace moesim::models
