// Faults of the simulated machine: slow GPUs, degraded or failed links and ports, jitter, and what failures
// and restarts leave of the time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/costs/program_prices.h"
#include "models/programs/program.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Cluster;

struct Faults {
  struct SlowGpu {
    std::int64_t gpu = 0;
    double factor = 1;  // times as long as a usual GPU computes, at least 1
  };
  struct Port {
    std::int64_t gpu = 0;
    double share = 1;  // of the usual bandwidth that is left
  };
  std::vector<SlowGpu> slow_gpus;
  std::vector<Port> nvlinks;  // share above 0
  std::vector<Port> nics;     // 0: failed, its traffic goes over the next port of the node
  double jitter = 0;          // standard deviation of every kernel's time on every GPU, relative
  std::uint64_t seed = 1;     // of the jitter
  double gpu_mtbf_hours = 0;  // mean time between failures of one GPU with its share of the machine; 0: never
  double checkpoint_s = 0;    // time that training stands still for a checkpoint
  double restart_s = 0;       // from a failure until training goes on
  double interval_s = 0;      // of work between checkpoints; 0: the best one

  bool slow() const { return !slow_gpus.empty() || !nvlinks.empty() || !nics.empty() || jitter > 0; }
  bool any() const { return slow() || gpu_mtbf_hours > 0; }

  // The object {"slow_gpus": [{"gpu", "factor"}], "nvlinks": [{"gpu", "bandwidth"}], "nics": [{"gpu",
  // "bandwidth"}], "jitter", "seed", "gpu_mtbf_hours", "checkpoint_s", "restart_s", "checkpoint_interval_s"};
  // bandwidths are shares.
  static Faults parse(const JsonNode& node);
  // Throws InputError for a GPU that the cluster does not have, and for a failed port without another one in
  // its node.
  void check_against(const Cluster& cluster) const;
};

// How much longer things take on each of some ranks.
struct RankFaults {
  std::vector<double> compute, nvlink, network;
  double jitter = 0;
  std::uint64_t seed = 1;
  friend bool operator==(const RankFaults&, const RankFaults&) = default;

  // Of the GPUs on which ranks 0, 1, ... run.
  static RankFaults of(const Faults& faults, const Cluster& cluster, std::span<const std::int32_t> gpus);
  bool any() const;
  double link(bool across, std::size_t rank) const { return (across ? network : nvlink)[rank]; }
  // Factor of operation `op` on a rank: the GPU's own and one draw of jitter.
  double computing(std::size_t op, std::size_t rank) const;
};

// The same pass with faults: computing on each rank by its own factor; collectives in rings as slow as their
// slowest member, exchanges of pairs by the rank's own link (who waits for it is the rendezvous's business).
// `salt` keeps the jitter of different programs apart.
void apply_faults(const RankFaults& faults, const Program& program, const std::vector<Op>& pass,
                  const GroupShapes& shapes, std::size_t salt, sim::LockstepProgram& priced);

struct Goodput {
  double failures_per_day = 0;  // of the whole job
  double interval_s = 0;        // of work between checkpoints
  double share = 1;             // of the time that is work which is not lost again
};

// Failures come at random with the GPUs' joint rate; work since the last checkpoint is lost (Daly, A higher
// order estimate of the optimum checkpoint interval for restart dumps, FGCS 22, 2006: equation 20 for the
// time, 37 for the interval). A step is never cut, so the interval is at least one.
Goodput goodput(const Faults& faults, std::int64_t gpus, double step_s);

}  // namespace moesim::models
