// The priced operations of one layer of a training step: mixers, FFNs, embedding and head, forward and
// backward.
//
// The part that no dispatcher changes is the same on every rank and is priced here directly; the MoE part is
// the dispatcher's program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/costs/attention.h"
#include "models/costs/collectives.h"
#include "models/costs/domain_report.h"
#include "models/costs/kernels.h"
#include "models/costs/layer_costs.h"
#include "models/costs/training_products.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/routing/routing.h"
#include "models/step/step_pass.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/parallel.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

// A MoE layer's program and where its ranks stand: what no price changes.
struct MoeProgram {
  Program program;
  GroupShapes shapes;
  UnevenLoads loads;
  std::string dispatcher;  // its name, without options
};

// Parts in the order in which they run.
struct LayerParts {
  std::vector<TimedPart> forward, backward;
};

// GPU of each rank of a dispatch group of stage 0: consecutive, or for an unfolded plan ETP along TP and EP
// along the data-parallel ranks.
std::vector<std::int32_t> dispatch_ranks(const Parallel& parallel, const TrainingPlan& plan);

// Prices layers on one cluster (whose profile may be drawn). Everything is by reference: keep it alive.
// `conversions`: share of the products' operand conversions that is counted (0: the products alone).
class LayerPricer {
 public:
  LayerPricer(const Architecture& model, const Parallel& parallel, const TrainingPlan& plan,
              const Cluster& cluster, std::int64_t topk, DType router, double conversions = 1);
  LayerPricer(const LayerPricer&) = delete;
  LayerPricer& operator=(const LayerPricer&) = delete;
  ~LayerPricer();

  // `moe` may be null for models without experts. What is priced outside the measured domain is added to
  // `report`, where given, `times` over.
  LayerParts layer(LayerKind kind, const MoeProgram* moe, DomainReport* report = nullptr,
                   double times = 1) const;
  LayerParts embedding(DomainReport* report = nullptr) const;
  LayerParts head(DomainReport* report = nullptr) const;

  const CollectiveModel& collectives() const { return collectives_; }
  std::int64_t launch_ps() const { return launch_ps_; }
  // What computing slows down to while expert communication runs beside it: the share of SMs it takes.
  double compute_slowdown(const MoeProgram* moe) const;

 private:
  class Writer;
  friend class Writer;

  double scan_flops(const Mamba& mamba, std::int64_t inner, std::int64_t tokens) const;
  // Of the keys and values that context-parallel ranks pass on in a step of their ring (with their gradients
  // in backward).
  double ring_bytes(std::int64_t kv_heads, GemmPass pass) const;
  double core_seconds(LayerKind kind, std::int64_t heads, std::int64_t kv_heads, GemmPass pass) const;
  // Columns of queries and keys, which rotary embeddings read and write.
  template <class Projections>
  double qk_columns(const Projections& p) const {
    return static_cast<double>((p.heads + p.kv_heads) * a_.attention.score_dim());
  }

  const Architecture& a_;
  const Parallel& p_;
  const TrainingPlan& plan_;
  const Cluster& cluster_;
  std::int64_t topk_;
  DType router_;
  ProductRecipe recipe_;
  TrainingProducts products_;
  LayerCosts costs_;
  KernelModel kernels_;
  CollectiveModel collectives_;
  AttentionModel attention_;
  GroupShape tp_, cp_pair_;
  std::int64_t launch_ps_ = 0;
  double scan_rate_ = 0;  // FLOP/s of state-space scans
  double power_ = 1;      // power_slowdown() of the slowest GPU
  double traffic_ = 1;    // bytes of the dispatcher's kernels against the compulsory ones
};

}  // namespace moesim::models
