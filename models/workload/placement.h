// The placement of a plan's ranks: the GPU of every member of every group, as a function of plan and cluster.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/hardware/group_shape.h"
#include "models/workload/parallel.h"

namespace moesim::models {

struct Scenario;

// Ranks are laid out as Megatron does by default: TP fastest, then CP, EP, DP, PP. With its TP-PP-DP mapping
// the stages of a replica are neighbours: a block of TP x CP ranks, the same block of the next stage, and so
// on.
//
// Groups of one kind with equal shapes form one class. Members of a job wait for each other (in gradients, in
// the pipeline), so a kind of group is priced by its slowest class. Not thread-safe.
class Placement {
 public:
  using Groups = std::vector<std::vector<std::int32_t>>;  // GPUs of each group

  // The scenario's cluster must outlive the placement.
  explicit Placement(const Scenario& scenario);
  // `unfolded`: experts are placed as before parallel folding, EP inside DP and ETP along TP.
  // `stages_inside`: as in TrainingSettings. `cluster` must outlive the placement.
  Placement(const Parallel& parallel, bool unfolded, const Cluster& cluster, bool stages_inside);

  const Cluster& cluster() const { return *cluster_; }
  std::int64_t stage_ranks() const { return parallel_.world() / parallel_.pp; }

  // GPU of each rank of the first dispatch group of stage 0 (ETP fastest, then EP).
  const std::vector<std::int32_t>& dispatch() const { return dispatch_; }
  // Returns every dispatch group of a stage.
  Groups dispatch_groups(std::int64_t stage) const;

  // Dispatch groups whose members lie in the same pattern of domains and nodes.
  struct DispatchClass {
    std::vector<std::int32_t> gpus;  // of the class's first group, by rank of the dispatch group
    GroupShape shape;
    std::int64_t groups = 0;  // over all stages

    // Returns the number of consecutive members that share a domain, where the group consists of equal such
    // blocks; 0: it does not.
    int block() const;
    // Likewise for members that share a node, where a domain spans several; 0: no domain does, or blocks are
    // unequal.
    int block_in_node() const;
  };
  // Classes over all stages; the first one contains dispatch().
  const std::vector<DispatchClass>& dispatch_classes() const { return classes_; }

  using Shapes = std::vector<GroupShape>;           // one per class
  const Shapes& tensor() const { return tensor_; }  // tensor-parallel ranks of the dense part
  // Two neighbours in a ring of context-parallel ranks, across domains where the ring has such a pair; one
  // rank where there is no ring.
  const GroupShape& context_pair() const { return context_pair_; }

  // The data-parallel ranks that hold the same weights.
  struct Replicas {
    std::int64_t ranks = 1;
    Shapes all;
    Groups groups;  // GPUs of one group of each kind

    bool across_domains() const;
    // Most members that share an NVLink domain: HSDP's default shard group.
    int per_domain() const { return all.front().max_per_domain; }
  };
  const Replicas& dense_replicas() const;
  const Replicas& expert_replicas() const;
  // A subset of the replicas: `size` neighbours, or those at the same position in different blocks of `size`.
  struct Members {
    const Replicas* replicas = nullptr;
    std::int64_t size = 1;
    bool across = false;
    bool operator==(const Members&) const = default;
  };
  Shapes shapes_of(const Members& members) const;
  // Returns all such groups of the job.
  Groups groups_of(const Members& members) const;
  // Returns the ranks of all stages that work on the same tokens.
  Shapes pipelines() const;
  // Returns pairs of a rank of stage `from` and the rank of stage `to` that it sends to.
  const Shapes& pipeline_pairs(std::int64_t from, std::int64_t to) const;
  Groups all_pipeline_pairs(std::int64_t from, std::int64_t to) const;

  // Notes for the reader on groups that straddle domains while others do not, one sentence each.
  std::vector<std::string> notes() const;

 private:
  // Returns the GPU of a rank of a stage.
  std::int32_t gpu(std::int64_t stage, std::int64_t rank) const;
  // Returns the position in the repeating pattern of nodes and domains; groups with equal positions of their
  // first GPUs are shifted copies.
  std::int64_t place_of(std::int64_t gpu) const { return gpu % period_; }
  // Returns the first rank of a stage at each position in that pattern.
  std::vector<std::int64_t> ranks_with_own_place(std::int64_t stage) const;
  // Groups over all stages; `one_of_each`: one group for each position of the first GPU.
  Groups dense_groups(bool one_of_each) const;
  Groups expert_groups(bool one_of_each) const;
  Groups one_of_each_place(Groups groups) const;
  void find_classes();
  void find_context_pair();
  Shapes classes_of(const Groups& groups) const;

  Parallel parallel_;
  const Cluster* cluster_;
  bool stages_inside_;
  std::int64_t period_ = 1;
  std::vector<std::int32_t> dispatch_;
  std::vector<DispatchClass> classes_;
  Shapes tensor_;
  GroupShape context_pair_;
  // Created on first use.
  mutable std::optional<Replicas> dense_, experts_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, Shapes> pairs_;
};

}  // namespace moesim::models
