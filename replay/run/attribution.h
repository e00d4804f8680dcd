// Where an iteration's time goes: runs of the same plans with one cause after the other taken away.
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
  attention_skew,  // all other computing that differs between ranks with the same work
  gradient_sync,   // reductions of gradients, with their scaling and checks
  network,         // every other transfer: exchanges, loss, point-to-point
  host,            // gaps between operations
  bubble,          // stages that have nothing to do
  computing,       // what is left: even computing of one stage
};
inline constexpr std::size_t kCausesOfTime = 8;
std::string_view name(CauseOfTime cause);

struct TimeShare {
  CauseOfTime cause = CauseOfTime::computing;
  double us = 0;
};

// How long others wait in collectives because of one rank, or in one layer.
struct Waiting {
  int index = 0;  // rank, or layer of the stage's forward order
  int stage = 0;
  double us = 0;  // sum over the ranks that wait
};

struct Attribution {
  // In the order above, contention only under timing `flow`; adds up to the iteration.
  std::vector<TimeShare> shares;
  std::vector<Waiting> ranks;   // by how long others waited for them, longest first
  std::vector<Waiting> layers;  // by how long ranks waited in their calls, longest first
};

// The rule: causes are taken away in the order above and stay away, each accounts for what the iteration
// loses at its turn. Contention: transfers take what they take alone. Routing skew: every segment with
// experts takes the mean of its expert group (same microbatch and layer). Attention skew: every other segment
// of computing takes the mean of its data-parallel group. Then gradient reductions, other transfers and host
// gaps take no time. Of what is left, the mean computing of the ranks of the busiest stage is computing, the
// rest bubble. Causes hide behind each other: what is taken away first looks smaller, never larger, than
// alone. `pricing` makes a new pricing for each run, of timing `calibrated`.
Attribution attribute(const Iteration& iteration, std::span<const RankPlan> plans, int layers_per_stage,
                      const std::function<std::unique_ptr<Pricing>()>& pricing);

}  // namespace moesim::replay
