// Prices of a program's operations on a cluster: picoseconds per operation and rank.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/costs/collectives.h"
#include "models/costs/domain_report.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/costs/training_products.h"
#include "models/hardware/cluster.h"
#include "models/programs/program.h"

namespace moesim::models {

inline std::int64_t to_ps(double seconds) { return std::llround(seconds * 1e12); }

// How the groups of a dispatch group lie on a cluster. Does not depend on the profile's numbers.
class GroupShapes {
 public:
  // Rank i of the dispatch group is GPU first_rank + i * stride of the cluster. `dense_tp`: tensor-parallel
  // size.
  GroupShapes(const Cluster& cluster, const Program& program, std::int64_t first_rank = 0,
              std::int64_t stride = 1);
  // Rank i of the dispatch group is GPU ranks[i].
  GroupShapes(const Cluster& cluster, const Program& program, std::span<const std::int32_t> ranks);
  const GroupShape& of(GroupKind kind, int group) const { return shapes_[static_cast<int>(kind)][group]; }

 private:
  std::array<std::vector<GroupShape>, 4> shapes_;
};

// The uneven exchanges of a program on its groups: what every member has to move, whatever the profile's
// numbers are.
class UnevenLoads {
 public:
  UnevenLoads(const Program& program, const GroupShapes& shapes);
  const UnevenLoad& of(int matrix, bool transposed, int group) const {
    return loads_[static_cast<std::size_t>(matrix) * 2 + (transposed ? 1 : 0)]
                 [static_cast<std::size_t>(group)];
  }

 private:
  std::vector<std::vector<UnevenLoad>> loads_;  // [matrix * 2 + transposed][group]; empty where not used
};

// Durations of one pass: [operation][rank]. Operations without a duration (ALLOC, FREE) hold zeros.
struct PricedPass {
  std::vector<std::int64_t> ps;
  int ranks = 0;
  std::int64_t at(std::size_t op, int rank) const { return ps[op * ranks + rank]; }
};

class LayerCosts {
 public:
  // Resolves the cluster's profile.
  explicit LayerCosts(const Cluster& cluster);
  // As a training step runs them: the experts' products as `recipe` says.
  LayerCosts(const Cluster& cluster, const ProductRecipe& recipe);

  // Times a pass. A collective's duration is from the arrival of its last member.
  PricedPass price(const Program& program, const std::vector<Op>& pass, const GroupShapes& shapes,
                   const UnevenLoads& loads) const;

  std::int64_t launch_ps() const { return launch_ps_; }  // host time of one launch
  std::int64_t host_sync_ps() const {
    return host_sync_ps_;
  }  // from the end of the copy until the host goes on

  // Adds the operations of a priced pass, `times` each, to what a report knows of the measured domain.
  void report(const Program& program, const std::vector<Op>& pass, const PricedPass& priced,
              const GroupShapes& shapes, DomainReport& into, double times = 1) const;

 private:
  void price_collective(const Program& program, const std::vector<Op>& pass, std::size_t index,
                        const GroupShapes& shapes, const UnevenLoads& loads, std::int64_t* out) const;

  // A measured dispatch or combine kernel of a library, the same for all groups that lie alike.
  struct ExchangeKernel {
    std::string key;
    EpKernelModel model;
    bool network = false;  // measured across nodes
    DomainRange ranks, tokens;
    int rows = 0;
    double beyond = 0;  // ParameterSet::beyond
  };
  // The law with the most rows that covers the operation's stages; nullptr where the profile has none.
  const ExchangeKernel* kernel_of(const Program& program, const std::vector<Op>& pass,
                                  std::size_t index) const;
  std::optional<OutsideDomain> outside(const Program& program, const std::vector<Op>& pass, std::size_t index,
                                       int rank, const GroupShapes& shapes) const;
  void price_kernel(const Program& program, const std::vector<Op>& pass, std::size_t index,
                    const ExchangeKernel& kernel, std::int64_t* out) const;

  std::string profile_name_;
  std::array<std::vector<ExchangeKernel>, 4>
      kernels_of_libraries_;  // [library - 1][combine], most rows first
  CollectiveModel collectives_;
  GemmModel gemms_;
  KernelModel kernels_;
  std::int64_t launch_ps_ = 0, host_sync_ps_ = 0, copy_ps_ = 0;
  double attention_forward_ = 0, attention_backward_ = 0;  // FLOP/s
  std::shared_ptr<const TrainingProducts> products_;       // null: the element type of each operation
};

}  // namespace moesim::models
