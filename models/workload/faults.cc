#include "models/workload/faults.h"

#include <fmt/format.h>

#include <utility>

#include "base/input_error.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

void Faults::check_against(const Cluster& cluster) const {
  for (const auto& [key, seconds] : {std::pair{"checkpoint_s", checkpoint_s},
                                     {"restart_s", restart_s},
                                     {"checkpoint_interval_s", interval_s}})
    if (gpu_mtbf_hours == 0 && seconds > 0)
      throw InputError(fmt::format(
          "faults.{}: found without gpu_mtbf_hours, expected it with how often a GPU fails", key));
  const auto exists = [&](std::int64_t gpu, const char* key) {
    if (gpu >= cluster.ranks())
      throw InputError(fmt::format("faults.{}: found GPU {}, expected 0 to {} on {}", key, gpu,
                                   cluster.ranks() - 1, cluster.name));
  };
  for (const SlowGpu& g : slow_gpus) exists(g.gpu, "slow_gpus");
  for (const Port& p : nvlinks) exists(p.gpu, "nvlinks");
  for (const Port& p : nics) {
    exists(p.gpu, "nics");
    constexpr double kLeast = 1e-6;
    if (p.share > 0 && p.share < kLeast)
      throw InputError(fmt::format("faults.nics: found {} of the bandwidth of GPU {}, expected 0 or {} to 1",
                                   p.share, p.gpu, kLeast));
    if (p.share == 0 && cluster.nic.ports_per_node < 2)
      throw InputError(
          fmt::format("faults.nics: found a failed port of GPU {}, expected a bandwidth above 0: its node "
                      "has no other port",
                      p.gpu));
  }
}

}  // namespace moesim::models
