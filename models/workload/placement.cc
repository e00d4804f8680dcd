#include "models/workload/placement.h"

#include <algorithm>

namespace moesim::models {

Placement::Placement(const Parallel& p, bool unfolded, const Cluster& cluster)
    : parallel_(p), cluster_(&cluster) {
  // The expert axis of a mesh lies outside of tp, as EP did before parallel folding.
  const bool apart = (unfolded && p.etp == p.tp) || p.mesh_ep > 1;
  for (std::int64_t e = 0; e < p.ep; ++e)
    for (std::int64_t t = 0; t < p.etp; ++t)
      dispatch_.push_back(static_cast<std::int32_t>(t + e * (apart ? p.tp * p.cp : p.etp)));
}

std::vector<std::vector<std::int32_t>> Placement::dispatch_groups(std::int64_t stage) const {
  const Parallel& p = parallel_;
  const auto ranks = static_cast<std::int64_t>(dispatch_.size());
  // Groups are consecutive, or, where EP lies inside data parallelism, interleave over TP and CP.
  const bool apart = dispatch_.back() - dispatch_.front() != ranks - 1;
  const std::int64_t span = apart ? p.tp * p.cp * p.ep : ranks;
  const std::int64_t shifts = apart ? p.tp * p.cp : p.etp;
  std::vector<std::vector<std::int32_t>> groups;
  for (std::int64_t begin = 0; begin + span <= stage_ranks(); begin += span)
    for (std::int64_t shift = 0; shift < shifts; shift += p.etp) {
      std::vector<std::int32_t> gpus;
      for (const std::int32_t r : dispatch_)
        gpus.push_back(static_cast<std::int32_t>(stage * stage_ranks() + begin + shift + r));
      groups.push_back(std::move(gpus));
    }
  return groups;
}

GroupShape Placement::tensor() const { return GroupShape::strided(*cluster_, parallel_.tp, 1); }

GroupShape Placement::context_pair() const {
  const std::int64_t tp = parallel_.tp, cp = parallel_.cp;
  const std::int64_t far = (cp - 1) * tp;
  if (cp > 1 && cluster_->domain_of(far) != cluster_->domain_of(0)) {
    const std::int64_t edge = cluster_->nvlink.domain;
    const std::vector<std::int32_t> pair{static_cast<std::int32_t>(std::max<std::int64_t>(0, edge - tp)),
                                         static_cast<std::int32_t>(edge)};
    return GroupShape::of(*cluster_, pair);
  }
  return GroupShape::strided(*cluster_, cp > 1 ? 2 : 1, tp);
}

Placement::Replicas Placement::dense_replicas() const {
  const std::int64_t stride = parallel_.tp * parallel_.mesh_ep;
  return {GroupShape::strided(*cluster_, parallel_.data_ranks(), stride), stride};
}

Placement::Replicas Placement::expert_replicas() const {
  if (parallel_.mesh_ep > 1) return dense_replicas();  // a mesh has one data-parallel group for all weights
  const std::int64_t stride = parallel_.etp * parallel_.ep;
  return {GroupShape::strided(*cluster_, std::max<std::int64_t>(1, parallel_.edp()), stride), stride};
}

GroupShape Placement::block_of(const Replicas& replicas, std::int64_t size) const {
  return GroupShape::strided(*cluster_, size, replicas.stride);
}

GroupShape Placement::across_blocks(const Replicas& replicas, std::int64_t size) const {
  return GroupShape::strided(*cluster_, replicas.all.ranks / size, size * replicas.stride);
}

GroupShape Placement::pipeline_neighbours() const {
  return GroupShape::strided(*cluster_, parallel_.pp > 1 ? 2 : 1, stage_ranks());
}

}  // namespace moesim::models
