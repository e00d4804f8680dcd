#include "models/costs/cluster_costs.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace moesim::models {

namespace {

// Returns the bytes of an equal collective that takes as long.
double equal_bytes(const sim::CollectiveShape& shape) {
  if (shape.traffic.kind == sim::Traffic::Kind::uniform) return static_cast<double>(shape.traffic.bytes);
  // As CollectiveModel::all_gather_v() prices pieces.
  const auto& pieces = shape.traffic.pieces;
  double sum = 0;
  for (const std::uint64_t piece : pieces) sum += static_cast<double>(piece);
  return (sum - static_cast<double>(*std::min_element(pieces.begin(), pieces.end()))) /
         std::max<double>(1, static_cast<double>(pieces.size()) - 1);
}

// Returns the bytes that represent a shape in the measured range: the largest piece.
double uniform_bytes(const sim::CollectiveShape& shape) {
  if (shape.traffic.kind == sim::Traffic::Kind::uniform) return static_cast<double>(shape.traffic.bytes);
  return static_cast<double>(*std::max_element(shape.traffic.pieces.begin(), shape.traffic.pieces.end()));
}

// An all_to_all of no bytes costs its launch alone, in seconds.
double launch_of(const CollectiveModel& collectives, const GroupShape& group) {
  return collectives.seconds(sim::CollectiveOp::all_to_all, group, 0);
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
      collectives_.all_to_all_v(group, shape.traffic.rows, static_cast<double>(shape.traffic.bytes), seconds);
      break;
    }
  }
  for (std::size_t m = 0; m < out.size(); ++m) out[m] = sim::Time::from_seconds(seconds[m] + extra);
}

std::optional<OutsideDomain> ClusterCosts::outside(const sim::CollectiveShape& shape) const {
  double bytes = 0;
  if (shape.traffic.kind == sim::Traffic::Kind::matrix) {
    // Bytes sent by the member with the most rows, its own included.
    const std::size_t g = shape.members();
    for (std::size_t i = 0; i < g; ++i) {
      double sent = 0;
      for (std::size_t j = 0; j < g; ++j) sent += static_cast<double>(shape.traffic.between(i, j, g));
      bytes = std::max(bytes, sent);
    }
  } else {
    bytes = uniform_bytes(shape);
  }
  return collectives_.outside(shape.op, place(shape.ranks), bytes);
}

// Plans an all_to_all alone on its ports: the rates at which its busiest member ends at the time of the
// calibrated law.
void ClusterCosts::plan_exchange(const sim::CollectiveShape& shape, const GroupShape& group,
                                 sim::FlowParameters& plan) const {
  const std::size_t g = shape.members();
  double within = 0, across = 0;  // bytes of the busiest member, one way
  for (std::size_t i = 0; i < g; ++i) {
    double out_within = 0, out_across = 0, in_within = 0, in_across = 0;
    for (std::size_t j = 0; j < g; ++j) {
      if (i == j) continue;
      const bool same = group.domain_of[i] == group.domain_of[j];
      (same ? out_within : out_across) += static_cast<double>(shape.traffic.between(i, j, g));
      (same ? in_within : in_across) += static_cast<double>(shape.traffic.between(j, i, g));
    }
    within = std::max({within, out_within, in_within});
    across = std::max({across, out_across, in_across});
  }
  const auto rate = [&](const GroupShape& where, double bytes, int peers) {
    // An equal exchange in which every member sends `bytes` to `peers` others.
    const double buffer = bytes * where.ranks / peers;
    const double moving =
        collectives_.seconds(sim::CollectiveOp::all_to_all, where, buffer) - launch_of(collectives_, where);
    return moving > 0 ? bytes / moving : 0.0;
  };
  const sim::Time launch = plan.launch;
  if (within > 0) {
    const GroupShape domain = GroupShape::uniform(1, group.max_per_domain);
    plan.port_within = rate(domain, within, domain.ranks - 1);
    // Transfers inside the domain do not wait for the network's launch.
    plan.launch = sim::Time::from_seconds(launch_of(collectives_, domain) + extra_per_call_);
  }
  if (across > 0) {
    plan.port_across = rate(group, across, group.ranks - group.min_per_domain);
    plan.launch = std::min(plan.launch, launch);
    plan.step = launch - plan.launch;
  }
}

sim::FlowParameters ClusterCosts::plan_collective(const sim::CollectiveShape& shape) const {
  sim::FlowParameters plan;
  const GroupShape group = place(shape.ranks);
  std::vector<sim::Time> alone(shape.members());
  price_collective(shape, alone);
  plan.alone = *std::max_element(alone.begin(), alone.end());
  if (group.ranks <= 1) return plan;
  if (shape.op == sim::CollectiveOp::all_to_all) {
    plan.algorithm = sim::Algorithm::direct;
    plan.launch = sim::Time::from_seconds(launch_of(collectives_, group) + extra_per_call_);
    plan_exchange(shape, group, plan);
    plan.launch = std::min(plan.launch, plan.alone);
    return plan;
  }
  const CollectiveParts parts = collectives_.parts(shape.op, group, equal_bytes(shape));
  const double extra = shape.op == sim::CollectiveOp::send_recv ? 0.0 : extra_per_call_;
  plan.algorithm = parts.algorithm;
  plan.launch = std::min(sim::Time::from_seconds(parts.launch + extra), plan.alone);
  // Small messages leave capacity of the busiest port to others, large ones do not.
  if (parts.bandwidth > 0)
    plan.ports_busy =
        std::min(plan.alone - plan.launch, sim::Time::from_seconds(parts.wire_bytes / parts.bandwidth));
  return plan;
}

sim::Overlap ClusterCosts::overlap(sim::RankId) const {
  const OverlapFactors& factors = cluster_.profile.overlap();
  return {factors.compute_under_communication, factors.communication_under_compute};
}

}  // namespace moesim::models
