// Faults of the simulated machine in a scenario: slow GPUs, degraded or failed links and ports, jitter,
// failure rate of a GPU. models/step/faults.h computes their cost.
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
    double factor = 1;  // factor on the compute time of a normal GPU, at least 1
    friend bool operator==(const SlowGpu&, const SlowGpu&) = default;
  };
  struct Port {
    std::int64_t gpu = 0;
    double share = 1;  // share of the normal bandwidth
    friend bool operator==(const Port&, const Port&) = default;
  };
  std::vector<SlowGpu> slow_gpus;
  std::vector<Port> nvlinks;  // share above 0
  std::vector<Port> nics;     // 0: failed, its traffic uses the next port of the node
  double jitter = 0;          // relative standard deviation of every kernel's time on every GPU
  std::uint64_t seed = 1;     // for the jitter
  double gpu_mtbf_hours = 0;  // mean time between failures of one GPU with its share of the machine; 0: never
  // Assumptions: with them a training of Llama 3's size works 90 % of the time, as its report says (arXiv
  // 2407.21783, 3.3.4).
  static constexpr double kCheckpointSeconds = 30, kRestartSeconds = 300;
  double checkpoint_s = 0;  // pause of the training for a checkpoint; 0: not given, the assumption
  double restart_s = 0;     // from a failure until the training continues; 0: the assumption
  double interval_s = 0;    // of work between checkpoints; 0: the best one

  bool slow() const { return !slow_gpus.empty() || !nvlinks.empty() || !nics.empty() || jitter > 0; }
  bool any() const { return slow() || gpu_mtbf_hours > 0; }

  // Reads the object {"slow_gpus": [{"gpu", "factor"}], "nvlinks": [{"gpu", "bandwidth"}], "nics": [{"gpu",
  // "bandwidth"}], "jitter", ...}, the fields "faults.*" of models/workload/fields.h; bandwidths are shares.
  static Faults parse(const JsonNode& node);
  // Throws InputError for a GPU that the cluster lacks, for a failed port without another one in its node,
  // and for restart times without a failure rate.
  void check_against(const Cluster& cluster) const;
};

}  // namespace moesim::models
