// The simulator's interface to prices. models/ implements it from a profile.
#pragma once

#include <span>

#include "sim/graph/collective.h"
#include "sim/graph/time.h"

namespace moesim::sim {

// Conversion of a collective to flows (timing `flow`).
struct FlowParameters {
  Algorithm algorithm = Algorithm::ring;
  Time launch;              // from the last arrival to the first byte, once per collective
  Time step;                // latency of each step of the algorithm (a direct all_to_all has one)
  double efficiency = 1.0;  // share of a link's bandwidth available to payload under the protocol, in (0, 1]
  double bandwidth = 0.0;   // cap of a flow: bytes per second of one connection (0: only the links limit it)

  // Where the time of the collective alone is known, `flow` reproduces it without contention: `alone` is the
  // time from the last arrival to the last end, `launch` included, and replaces `step` and `bandwidth`.
  // `ports_busy`, for all but an all_to_all, replaces `efficiency`: the time for which the busiest port of
  // its members (a link of a GPU or of a NIC) is occupied, no longer than the bytes move. The rest is
  // protocol time, which also blocks others. An all_to_all runs at the rates of its ports, in bytes per
  // second per GPU and direction: inside an NVLink domain and across domains.
  Time alone;  // zero: unknown
  Time ports_busy;
  double port_within = 0;
  double port_across = 0;
};

// Slowdown of work while the GPU computes and communicates at the same time; at least 1.
struct Overlap {
  double compute = 1.0;
  double communication = 1.0;
};

// Every method must be a pure function: equal arguments give equal results within a run.
class Costs {
 public:
  virtual ~Costs() = default;

  // Timing `calibrated`: for every member, the time from the last arrival to that member's end, launch
  // included. Called once per distinct (operation, group, traffic).
  virtual void price_collective(const CollectiveShape& shape, std::span<Time> out) const = 0;

  // Timing `flow`. Called once per distinct (operation, group, traffic).
  virtual FlowParameters plan_collective(const CollectiveShape& shape) const = 0;

  virtual Overlap overlap(RankId) const { return {}; }
};

}  // namespace moesim::sim
