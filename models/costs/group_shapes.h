// Shapes of a program's groups on a cluster, and the load of their uneven exchanges.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/costs/collectives.h"
#include "models/hardware/group_shape.h"
#include "models/programs/program.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

struct Cluster;
class Placement;

// Shapes of the groups of a dispatch group on a cluster. Independent of the profile's numbers.
class GroupShapes {
 public:
  // Rank i of the dispatch group is GPU first_rank + i * stride of the cluster.
  GroupShapes(const Cluster& cluster, const Program& program, std::int64_t first_rank = 0,
              std::int64_t stride = 1);
  // A dispatch group of a plan. kDense has one shape for each class of the plan's tensor-parallel groups.
  GroupShapes(const Placement& placement, const Program& program, std::span<const std::int32_t> gpus);
  const GroupShape& of(GroupKind kind, int group) const { return shapes_[static_cast<int>(kind)][group]; }
  std::span<const GroupShape> all(GroupKind kind) const { return shapes_[static_cast<int>(kind)]; }
  bool across_domains(GroupKind kind) const;  // whether any of them spans NVLink domains
  // Two neighbours in the ring of context-parallel ranks.
  const GroupShape& context_pair() const { return context_pair_; }
  // The ranks of every kind of group that meet in collectives, indexed by GroupKind.
  const std::shared_ptr<const sim::LockstepGroups>& meetings() const { return meetings_; }

 private:
  void add(const Cluster& cluster, const Program& program, std::span<const std::int32_t> ranks);

  std::array<std::vector<GroupShape>, 4> shapes_;
  GroupShape context_pair_;
  std::shared_ptr<const sim::LockstepGroups> meetings_;
};

// Load of every member in the uneven exchanges of a program. Independent of the profile's numbers.
class UnevenLoads {
 public:
  UnevenLoads(const Program& program, const GroupShapes& shapes);
  const UnevenLoad& of(int matrix, int group) const {
    return loads_[static_cast<std::size_t>(matrix)][static_cast<std::size_t>(group)];
  }

 private:
  std::vector<std::vector<UnevenLoad>> loads_;  // [matrix][group]; empty where not used
};

}  // namespace moesim::models
