#include "models/step/step_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/hardware/cluster.h"
#include "models/workload/placement.h"

namespace moesim::models {

namespace {

bool plain(const std::vector<double>& factors) {
  return std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
}

bool only_jitter(const RankFaults& f) { return plain(f.compute) && plain(f.nvlink) && plain(f.network); }

}  // namespace

std::vector<std::vector<RankFaults>> faults_of_stages(const Scenario& scenario,
                                                      std::vector<std::string>& warnings) {
  std::vector<std::vector<RankFaults>> stages;
  const Faults& faults = scenario.faults;
  if (!faults.slow()) return stages;
  const Parallel& p = scenario.parallel;
  std::int64_t outside = 0;
  for (const Faults::SlowGpu& gpu : faults.slow_gpus) outside += gpu.gpu >= p.world();
  for (const auto* ports : {&faults.nvlinks, &faults.nics})
    for (const Faults::Port& port : *ports) outside += port.gpu >= p.world();
  if (outside > 0) warnings.push_back(fmt::format("faults: {} on GPUs that the plan does not use", outside));
  const Placement placement(scenario);
  for (std::int64_t stage = 0; stage < p.pp; ++stage) {
    std::vector<RankFaults> found;
    for (const std::vector<std::int32_t>& gpus : placement.dispatch_groups(stage)) {
      RankFaults one = RankFaults::of(faults, *scenario.cluster, gpus);
      if (!only_jitter(one) || (one.jitter > 0 && found.empty())) found.push_back(std::move(one));
    }
    // Beside a real fault, jitter alone does not count.
    if (found.size() > 1) std::erase_if(found, only_jitter);
    stages.push_back(std::move(found));
  }
  return stages;
}

}  // namespace moesim::models
