// Where a plan's ranks stand: which GPU every member of every group is, as a function of plan and cluster.
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
// Groups of one kind that lie alike are one class. Members of a job meet (in gradients, in the pipeline), so
// whoever prices a kind of group takes the slowest of its classes. Not for several threads at a time.
class Placement {
 public:
  using Groups = std::vector<std::vector<std::int32_t>>;  // the GPUs of each

  // The scenario's cluster must outlive the placement.
  explicit Placement(const Scenario& scenario);
  // `unfolded`: experts stand as before parallel folding, EP inside DP and ETP along TP. `stages_inside`:
  // TrainingPlan's. `cluster` must outlive the placement.
  Placement(const Parallel& parallel, bool unfolded, const Cluster& cluster, bool stages_inside);

  const Cluster& cluster() const { return *cluster_; }
  std::int64_t stage_ranks() const { return parallel_.world() / parallel_.pp; }

  // GPU of each rank of the first dispatch group of stage 0 (ETP fastest, then EP).
  const std::vector<std::int32_t>& dispatch() const { return dispatch_; }
  // Every dispatch group of a stage.
  Groups dispatch_groups(std::int64_t stage) const;

  // Dispatch groups whose members lie in the same pattern of domains and nodes.
  struct DispatchClass {
    std::vector<std::int32_t> gpus;  // of its first group, by rank of the dispatch group
    GroupShape shape;
    std::int64_t groups = 0;  // over all stages

    // Members in a row that share a domain, where the group is made of equal such blocks; 0: it is not.
    int block() const;
    // The same that share a node, where a domain joins several; 0: none does, or not in equal blocks.
    int block_in_node() const;
  };
  // Of all stages; the first one holds dispatch().
  const std::vector<DispatchClass>& dispatch_classes() const { return classes_; }

  using Shapes = std::vector<GroupShape>;           // one of each class
  const Shapes& tensor() const { return tensor_; }  // tensor-parallel ranks of the dense part
  // Two neighbours in a ring of context-parallel ranks, across domains where there are such; one rank where
  // there is no ring.
  const GroupShape& context_pair() const { return context_pair_; }

  // The data-parallel ranks that hold the same weights.
  struct Replicas {
    std::int64_t ranks = 1;
    Shapes all;
    Groups groups;  // GPUs of one group of each kind

    bool across_domains() const;
    // How many share an NVLink domain in the fullest one: HSDP's shard group where nobody says.
    int per_domain() const { return all.front().max_per_domain; }
  };
  const Replicas& dense_replicas() const;
  const Replicas& expert_replicas() const;
  // Some of the replicas: `size` neighbours, or those with the same place in different blocks of `size`.
  struct Members {
    const Replicas* replicas = nullptr;
    std::int64_t size = 1;
    bool across = false;
    bool operator==(const Members&) const = default;
  };
  Shapes shapes_of(const Members& members) const;
  // All such groups of the job.
  Groups groups_of(const Members& members) const;
  // The ranks of all stages that work on the same tokens.
  Shapes pipelines() const;
  // A rank of stage `from` and the one of stage `to` that it sends to.
  const Shapes& pipeline_pairs(std::int64_t from, std::int64_t to) const;
  Groups all_pipeline_pairs(std::int64_t from, std::int64_t to) const;

  // What a reader should know of groups that straddle domains beside others that do not, a sentence each.
  std::vector<std::string> notes() const;

 private:
  // GPU of a rank of a stage.
  std::int32_t gpu(std::int64_t stage, std::int64_t rank) const;
  // Groups whose first GPUs have the same place in the pattern of nodes and domains are moved copies.
  std::int64_t place_of(std::int64_t gpu) const { return gpu % period_; }
  // The first rank of a stage at each place in the pattern of nodes and domains.
  std::vector<std::int64_t> ranks_with_own_place(std::int64_t stage) const;
  // Of all stages; `one_of_each`: those whose first GPUs have different places.
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
  // Made when they are asked for.
  mutable std::optional<Replicas> dense_, experts_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, Shapes> pairs_;
};

}  // namespace moesim::models
