#include "models/step/step_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/hardware/cluster.h"
#include "models/step/step_layers.h"

namespace moesim::models {

namespace {

bool plain(const std::vector<double>& factors) {
  return std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
}

bool only_jitter(const RankFaults& f) { return plain(f.compute) && plain(f.nvlink) && plain(f.network); }

// GPUs of every dispatch group of one stage, which begins at GPU `first`.
std::vector<std::vector<std::int32_t>> dispatch_groups(const Parallel& p, const TrainingPlan& plan,
                                                       std::int64_t first) {
  const std::vector<std::int32_t> pattern = dispatch_ranks(p, plan);
  const auto ranks = static_cast<std::int64_t>(pattern.size());
  const std::int64_t stage = p.world() / p.pp;
  // Groups are consecutive, or, where EP lies inside data parallelism, interleave over TP and CP.
  const bool apart = pattern.back() - pattern.front() != ranks - 1;
  const std::int64_t span = apart ? p.tp * p.cp * p.ep : ranks;
  const std::int64_t shifts = apart ? p.tp * p.cp : p.etp;
  std::vector<std::vector<std::int32_t>> groups;
  for (std::int64_t begin = 0; begin + span <= stage; begin += span)
    for (std::int64_t shift = 0; shift < shifts; shift += p.etp) {
      std::vector<std::int32_t> gpus;
      for (const std::int32_t r : pattern)
        gpus.push_back(static_cast<std::int32_t>(first + begin + shift + r));
      groups.push_back(std::move(gpus));
    }
  return groups;
}

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
  for (std::int64_t stage = 0; stage < p.pp; ++stage) {
    std::vector<RankFaults> found;
    for (const std::vector<std::int32_t>& gpus :
         dispatch_groups(p, scenario.training, stage * (p.world() / p.pp))) {
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
