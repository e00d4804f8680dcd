// Attributes an iteration's time to causes by rerunning its plans with one cause after another removed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "replay/run/iteration.h"

namespace moesim::replay {

enum class CauseOfTime : std::uint8_t {
  contention,      // transfers that share links, under timing `flow` only
  routing_skew,    // experts with more rows than their share
  attention_skew,  // other computing that differs between ranks with the same work
  gradient_sync,   // reductions of gradients, with their scaling and checks
  network,         // other transfers: exchanges, loss, point-to-point
  host,            // gaps between operations
  bubble,          // idle stages
  computing,       // the rest: even computing of one stage
};
inline constexpr std::size_t kCausesOfTime = 8;
std::string_view name(CauseOfTime cause);

struct TimeShare {
  CauseOfTime cause = CauseOfTime::computing;
  double us = 0;
};

// Time that ranks wait in collectives for one rank, or in one layer.
struct Waiting {
  int index = 0;  // rank, or layer in the stage's forward order
  int stage = 0;
  double us = 0;  // sum over the waiting ranks
};

struct Attribution {
  // In the order above, contention only under timing `flow`; the sum is the iteration.
  std::vector<TimeShare> shares;
  std::vector<Waiting> ranks;   // by the time that others waited for them, longest first
  std::vector<Waiting> layers;  // by the time that ranks waited in their calls, longest first
};

// Removes causes cumulatively in the order above; each accounts for the time that the iteration loses at its
// turn. Contention: transfers take their time alone. Routing skew: every segment with experts takes the mean
// of its expert group (same microbatch and layer). Attention skew: every other segment of computing takes the
// mean of its data-parallel group. Then gradient reductions, other transfers and host gaps take no time. Of
// the rest, the mean computing of the busiest stage's ranks is computing, the remainder bubble. Causes hide
// behind each other: an earlier cause looks smaller, never larger, than alone. `pricing` creates a pricing
// for each run, with timing `calibrated`.
Attribution attribute(const Iteration& iteration, std::span<const RankSteps> plans, int layers_per_stage,
                      const std::function<std::unique_ptr<Pricing>()>& pricing);

}  // namespace moesim::replay
