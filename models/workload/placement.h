// Where a plan's ranks stand: which GPU every member of every group is, as a function of plan and cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "models/hardware/group_shape.h"
#include "models/workload/parallel.h"

namespace moesim::models {

// Ranks are laid out as Megatron does by default: TP fastest, then CP, EP, DP, PP.
class Placement {
 public:
  // `unfolded`: experts stand as before parallel folding, EP inside DP and ETP along TP. `cluster` must
  // outlive the placement.
  Placement(const Parallel& parallel, bool unfolded, const Cluster& cluster);

  const Cluster& cluster() const { return *cluster_; }
  std::int64_t stage_ranks() const { return parallel_.world() / parallel_.pp; }

  // GPU of each rank of the first dispatch group of stage 0 (ETP fastest, then EP).
  const std::vector<std::int32_t>& dispatch() const { return dispatch_; }
  // Every dispatch group of a stage.
  std::vector<std::vector<std::int32_t>> dispatch_groups(std::int64_t stage) const;

  GroupShape tensor() const;  // tensor-parallel ranks of the dense part
  // Two neighbours in the ring of context-parallel ranks that are farthest apart; one rank where there is
  // none.
  GroupShape context_pair() const;
  // The data-parallel ranks that hold the same weights.
  struct Replicas {
    GroupShape all;
    std::int64_t stride = 1;  // GPUs between neighbours
  };
  Replicas dense_replicas() const;
  Replicas expert_replicas() const;
  // `size` neighbours of such a group, and those with the same place in different blocks of `size`.
  GroupShape block_of(const Replicas& replicas, std::int64_t size) const;
  GroupShape across_blocks(const Replicas& replicas, std::int64_t size) const;
  GroupShape pipeline_neighbours() const;  // a rank and the one of the next stage

 private:
  Parallel parallel_;
  const Cluster* cluster_;
  std::vector<std::int32_t> dispatch_;
};

}  // namespace moesim::models
