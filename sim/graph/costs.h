// The question the simulator asks about prices. Implemented in models/ from a profile.
#pragma once

#include <span>

#include "sim/graph/collective.h"
#include "sim/graph/time.h"

namespace moesim::sim {

// How a collective becomes flows (timing `flow`).
struct FlowPlan {
  Algorithm algorithm = Algorithm::ring;
  Time launch;              // from the last arrival to the first byte, once per collective
  Time step;                // latency of each step of the algorithm (a direct all_to_all has one)
  double efficiency = 1.0;  // share of a link's bandwidth that the protocol turns into payload, in (0, 1]
  double bandwidth = 0.0;   // bytes per second of one connection: the cap of a flow (0: only the links limit
                            // it)

  // Where a forecast of the collective alone is known, `flow` keeps to it while nothing contends: `alone` is
  // the time from the last arrival to the last end, `launch` included, and replaces `step` and `bandwidth`;
  // of an all_to_all `step` is what messages that leave their domain wait after `launch`.
  // `ports_busy`, of all but an all_to_all, replaces `efficiency`: how long the tightest port of its members
  // (a link of a GPU or of a NIC) is taken, no longer than the bytes move. What they leave of it is the
  // protocol's, and keeps others out all the same.
  // An all_to_all moves what its ports give, in bytes per second, GPU and direction: inside an NVLink domain
  // and across domains.
  Time alone;  // zero: not known
  Time ports_busy;
  double port_within = 0;
  double port_across = 0;
};

// How much longer work takes while the GPU computes and communicates at the same time; at least 1.
struct Overlap {
  double compute = 1.0;
  double communication = 1.0;
};

// Every method must be a pure function: equal questions get equal answers within a run.
class Costs {
 public:
  virtual ~Costs() = default;

  // Timing `calibrated`: for every member, the time from the last arrival to that member's end, launch
  // included. Asked once per distinct (operation, group, traffic).
  virtual void price_collective(const CollectiveShape& shape, std::span<Time> out) const = 0;

  // Timing `flow`. Asked once per distinct (operation, group, traffic).
  virtual FlowPlan plan_collective(const CollectiveShape& shape) const = 0;

  virtual Overlap overlap(RankId) const { return {}; }
};

}  // namespace moesim::sim
