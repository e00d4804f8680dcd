// Cost of the faults of the simulated machine (models/workload/faults.h): slowdowns per rank, and the time
// left after failures and restarts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/faults.h"

namespace moesim::sim {
struct LockstepProgram;
}

namespace moesim::models {

struct Cluster;
class GroupShapes;

// Slowdown factors of each of some ranks.
struct RankFaults {
  std::vector<double> compute, nvlink, network;
  double jitter = 0;
  std::uint64_t seed = 1;
  friend bool operator==(const RankFaults&, const RankFaults&) = default;

  // Returns the factors of the GPUs on which ranks 0, 1, ... run.
  static RankFaults of(const Faults& faults, const Cluster& cluster, std::span<const std::int32_t> gpus);
  bool any() const;
  double link(bool across, std::size_t rank) const { return (across ? network : nvlink)[rank]; }
  // Returns the factor of operation `op` on a rank: the GPU's own and one draw of jitter.
  double computing(std::size_t op, std::size_t rank) const;
};

// Applies the faults to a priced pass: computing by each rank's factor; ring collectives by their slowest
// member; pairwise exchanges by the rank's own link (the executor models the waiting). `salt` separates the
// jitter of different programs.
void apply_faults(const RankFaults& faults, const Program& program, const std::vector<Op>& pass,
                  const GroupShapes& shapes, std::size_t salt, sim::LockstepProgram& priced);

struct Goodput {
  double failures_per_day = 0;  // of the whole job
  double interval_s = 0;        // of work between checkpoints
  double share = 1;             // share of the time that is work and is not lost
};

// Failures come at random with the joint rate of all GPUs; work since the last checkpoint is lost (Daly, A
// higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22, 2006: equation 20 for
// the time, 37 for the interval). A step is never cut, so the interval is at least one step.
Goodput goodput(const Faults& faults, std::int64_t gpus, double step_s);

}  // namespace moesim::models
