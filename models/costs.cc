#include "models/costs.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace moesim::models {

namespace {

// The bytes that stand for a shape where one number is asked: the largest piece, or the mean send buffer.
double uniform_bytes(const sim::CollectiveShape& shape) {
  const std::size_t g = shape.members();
  switch (shape.traffic.kind) {
    case sim::Traffic::Kind::uniform:
      return static_cast<double>(shape.traffic.bytes);
    case sim::Traffic::Kind::pieces:
      return static_cast<double>(*std::max_element(shape.traffic.pieces.begin(), shape.traffic.pieces.end()));
    case sim::Traffic::Kind::matrix: {
      double total = 0;
      for (const std::uint32_t rows : shape.traffic.rows) total += rows;
      return total * static_cast<double>(shape.traffic.bytes) / static_cast<double>(g);
    }
  }
  check_failed("unknown traffic");
}

}  // namespace

ClusterCosts::ClusterCosts(const Cluster& cluster, double extra_per_call)
    : cluster_(cluster), collectives_(cluster), extra_per_call_(extra_per_call) {}

GroupShape ClusterCosts::place(std::span<const sim::RankId> ranks) const {
  std::vector<std::int32_t> members;
  members.reserve(ranks.size());
  for (const sim::RankId rank : ranks) members.push_back(static_cast<std::int32_t>(rank.value()));
  return GroupShape::of(cluster_, members);
}

void ClusterCosts::price_works(std::span<const std::uint64_t> keys, std::span<sim::Time>) const {
  check(keys.empty(), "computing times are in the graph");
}

void ClusterCosts::price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const {
  const GroupShape group = place(shape.ranks);
  const double extra = shape.op == sim::CollectiveOp::send_recv ? 0.0 : extra_per_call_;
  std::vector<double> seconds(out.size(), 0.0);
  switch (shape.traffic.kind) {
    case sim::Traffic::Kind::uniform:
      std::fill(seconds.begin(), seconds.end(),
                collectives_.seconds(shape.op, group, static_cast<double>(shape.traffic.bytes)));
      break;
    case sim::Traffic::Kind::pieces: {
      const std::vector<double> pieces(shape.traffic.pieces.begin(), shape.traffic.pieces.end());
      std::fill(seconds.begin(), seconds.end(),
                shape.op == sim::CollectiveOp::all_gather ? collectives_.all_gather_v(group, pieces)
                                                          : collectives_.reduce_scatter_v(group, pieces));
      break;
    }
    case sim::Traffic::Kind::matrix: {
      collectives_.all_to_all_v(group, shape.traffic.rows, static_cast<double>(shape.traffic.bytes),
                                shape.traffic.transposed, seconds);
      break;
    }
  }
  for (std::size_t m = 0; m < out.size(); ++m) out[m] = sim::Time::from_seconds(seconds[m] + extra);
}

sim::FlowPlan ClusterCosts::plan_collective(const sim::CollectiveShape& shape) const {
  const CollectiveParts parts = collectives_.parts(shape.op, place(shape.ranks), uniform_bytes(shape));
  sim::FlowPlan plan;
  plan.algorithm = parts.algorithm;
  plan.launch = sim::Time::from_seconds(parts.launch + extra_per_call_);
  plan.step = sim::Time::from_seconds(parts.step);
  plan.efficiency = std::clamp(parts.efficiency, 1e-6, 1.0);
  plan.bandwidth = parts.bandwidth;
  return plan;
}

sim::Overlap ClusterCosts::overlap(sim::RankId) const {
  const OverlapFactors& factors = cluster_.profile.overlap();
  return {factors.compute_under_communication, factors.communication_under_compute};
}

}  // namespace moesim::models
