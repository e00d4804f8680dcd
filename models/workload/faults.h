// Faults of the simulated machine as a scenario states them: slow GPUs, degraded or failed links and ports,
// jitter, how often a GPU fails. What they cost is models/step/faults.h's.
#pragma once

#include <cstdint>
#include <vector>

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
  // Assumptions: with them a training of Llama 3's size works 90 % of the time, as that one reports (arXiv
  // 2407.21783, 3.3.4).
  static constexpr double kCheckpointSeconds = 30, kRestartSeconds = 300;
  double checkpoint_s =
      0;                  // time that training stands still for a checkpoint; 0: nobody says, the assumption
  double restart_s = 0;   // from a failure until training goes on; 0: the assumption
  double interval_s = 0;  // of work between checkpoints; 0: the best one

  bool slow() const { return !slow_gpus.empty() || !nvlinks.empty() || !nics.empty() || jitter > 0; }
  bool any() const { return slow() || gpu_mtbf_hours > 0; }

  // Reads the object {"slow_gpus": [{"gpu", "factor"}], "nvlinks": [{"gpu", "bandwidth"}], "nics": [{"gpu",
  // "bandwidth"}], "jitter", ...}, the fields "faults.*" of models/workload/fields.h; bandwidths are shares.
  static Faults parse(const JsonNode& node);
  // Throws InputError for a GPU that the cluster does not have, for a failed port without another one in its
  // node, and for times of restarts where nobody says how often a GPU fails.
  void check_against(const Cluster& cluster) const;
};

}  // namespace moesim::models
