// Prices for the simulator from a cluster's profile. Rank i of the graph is GPU i of the cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "models/costs/collectives.h"
#include "models/costs/domain_report.h"
#include "models/hardware/cluster.h"
#include "sim/graph/costs.h"

namespace moesim::models {

class ClusterCosts : public sim::Costs {
 public:
  // `extra_per_call`: seconds added to every collective except point-to-point (recorders time each call
  // alone).
  explicit ClusterCosts(const Cluster& cluster, double extra_per_call = 0);

  void price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const override;
  sim::FlowParameters plan_collective(const sim::CollectiveShape& shape) const override;
  sim::Overlap overlap(sim::RankId rank) const override;

  const CollectiveModel& collectives() const { return collectives_; }
  // Returns what the profile did not measure for a collective's price.
  std::optional<OutsideDomain> outside(const sim::CollectiveShape& shape) const;

 private:
  GroupShape place(std::span<const sim::RankId> ranks) const;
  void plan_exchange(const sim::CollectiveShape& shape, const GroupShape& group,
                     sim::FlowParameters& plan) const;

  Cluster cluster_;
  CollectiveModel collectives_;
  double extra_per_call_;
};

}  // namespace moesim::models
