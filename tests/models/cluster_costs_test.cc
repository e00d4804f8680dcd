#include "models/costs/cluster_costs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moesim::models {
namespace {

using sim::CollectiveOp;

const Cluster& cluster() {
  static const Cluster two_nodes = Cluster::load(std::string("dgx-h100x2"));
  return two_nodes;
}

std::vector<sim::RankId> ranks(std::uint32_t count, std::uint32_t stride = 1) {
  std::vector<sim::RankId> list;
  for (std::uint32_t i = 0; i < count; ++i) list.emplace_back(i * stride);
  return list;
}

std::vector<sim::Time> priced(const ClusterCosts& costs, const sim::CollectiveShape& shape) {
  std::vector<sim::Time> out(shape.members());
  costs.price_collective(shape, out);
  return out;
}

sim::Traffic uniform(std::uint64_t bytes) { return {.bytes = bytes}; }

// The graph's rank numbers say who is on which node.
TEST(ClusterCosts, EqualCollectivesArePricedByTheLawOfTheirPlaces) {
  const ClusterCosts costs(cluster());
  const auto inside = ranks(8), across = ranks(16), rails = ranks(2, 8);
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_reduce, CollectiveOp::all_to_all})
    for (const auto& [members, shape] :
         {std::pair{&inside, GroupShape::uniform(1, 8)}, std::pair{&across, GroupShape::uniform(2, 8)},
          std::pair{&rails, GroupShape::uniform(2, 1)}})
      for (const sim::Time time : priced(costs, {op, *members, uniform(1 << 24)}))
        EXPECT_EQ(time, sim::Time::from_seconds(costs.collectives().seconds(op, shape, 1 << 24)))
            << sim::name(op) << " " << shape.domains;
}

TEST(ClusterCosts, WhatARecorderAddsComesWithEveryCallButPointToPoint) {
  const ClusterCosts plain(cluster()), recorded(cluster(), 30e-6);
  const auto two = ranks(2);
  const auto more = [&](CollectiveOp op) {
    const sim::CollectiveShape shape{op, two, uniform(1 << 20)};
    return (priced(recorded, shape)[0] - priced(plain, shape)[0]).us();
  };
  EXPECT_NEAR(more(CollectiveOp::all_gather), 30, 1e-5);
  EXPECT_NEAR(more(CollectiveOp::all_to_all), 30, 1e-5);
  EXPECT_EQ(more(CollectiveOp::send_recv), 0);
}

TEST(ClusterCosts, EqualPiecesAndRowsCostWhatUniformTrafficDoes) {
  const ClusterCosts costs(cluster());
  const auto group = ranks(8);
  const std::vector<std::uint64_t> pieces(8, 1 << 20);
  EXPECT_EQ(priced(costs,
                   {CollectiveOp::all_gather, group, {.kind = sim::Traffic::Kind::pieces, .pieces = pieces}}),
            priced(costs, {CollectiveOp::all_gather, group, uniform(1 << 20)}));
  const std::vector<std::uint32_t> rows(64, 1024);
  const auto matrix = priced(
      costs,
      {CollectiveOp::all_to_all, group, {.kind = sim::Traffic::Kind::matrix, .bytes = 1024, .rows = rows}});
  const auto equal = priced(costs, {CollectiveOp::all_to_all, group, uniform(8 << 20)});
  for (std::size_t m = 0; m < 8; ++m) EXPECT_NEAR(matrix[m].us(), equal[m].us(), 1e-5);
}

// While nothing contends a plan for flows keeps to the price: `alone` is the last member's end.
RC_GTEST_PROP(ClusterCosts, PlansKeepToThePrices, ()) {
  const ClusterCosts costs(cluster(), *rc::gen::elementOf(std::vector<double>{0, 30e-6}));
  const auto group = ranks(*rc::gen::elementOf(std::vector<std::uint32_t>{2, 4, 8, 16}));
  const std::size_t g = group.size();
  const auto rows =
      *rc::gen::container<std::vector<std::uint32_t>>(g * g, rc::gen::inRange<std::uint32_t>(0, 5000));
  const auto op = *rc::gen::elementOf(
      std::vector<CollectiveOp>{CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                                CollectiveOp::all_reduce, CollectiveOp::all_to_all, CollectiveOp::broadcast});
  const bool uneven = op == CollectiveOp::all_to_all && *rc::gen::arbitrary<bool>();
  const sim::CollectiveShape shape{
      op, group,
      uneven ? sim::Traffic{.kind = sim::Traffic::Kind::matrix, .bytes = 8192, .rows = rows}
             : uniform(*rc::gen::inRange<std::uint64_t>(1, 1 << 28))};
  const auto times = priced(costs, shape);
  const sim::FlowParameters plan = costs.plan_collective(shape);
  RC_ASSERT(plan.alone == *std::max_element(times.begin(), times.end()));
  RC_ASSERT(plan.launch <= plan.alone);
  RC_ASSERT(plan.efficiency > 0 && plan.efficiency <= 1);
  RC_ASSERT(plan.port_within <= cluster().nvlink.bandwidth * (1 + 1e-9));
  RC_ASSERT(plan.port_across <= cluster().nic.bandwidth * (1 + 1e-9));
}

// Messages inside a node start when an exchange there does; those to other nodes when one across them does.
TEST(ClusterCosts, AnExchangeInsideANodeDoesNotWaitForTheNetwork) {
  const ClusterCosts costs(cluster(), 30e-6);
  const auto launch = [&](const GroupShape& group) {
    return 1e6 * (costs.collectives().seconds(CollectiveOp::all_to_all, group, 0) + 30e-6);
  };
  const double inside = launch(GroupShape::uniform(1, 8)), across = launch(GroupShape::uniform(2, 8));
  ASSERT_GT(across, inside);
  const sim::FlowParameters both =
      costs.plan_collective({CollectiveOp::all_to_all, ranks(16), uniform(1 << 26)});
  EXPECT_NEAR(both.launch.us(), inside, 1e-5);
  EXPECT_NEAR((both.launch + both.step).us(), across, 1e-5);
  // One rank a node has nothing inside, and eight of one node nothing across.
  const sim::FlowParameters one =
      costs.plan_collective({CollectiveOp::all_to_all, ranks(2, 8), uniform(1 << 26)});
  EXPECT_NEAR(one.launch.us(), launch(GroupShape::uniform(2, 1)), 1e-5);
  EXPECT_EQ(one.step, sim::Time::kZero);
  const sim::FlowParameters node =
      costs.plan_collective({CollectiveOp::all_to_all, ranks(8), uniform(1 << 26)});
  EXPECT_NEAR(node.launch.us(), inside, 1e-5);
  EXPECT_EQ(node.step, sim::Time::kZero);
}

TEST(ClusterCosts, OverlapIsTheProfiles) {
  Cluster slow = cluster();
  slow.profile.overlap() = {1.2, 1.5};
  const sim::Overlap overlap = ClusterCosts(slow).overlap(sim::RankId(0));
  EXPECT_EQ(overlap.compute, 1.2);
  EXPECT_EQ(overlap.communication, 1.5);
}

// H100's exchanges inside a node were measured on 2 and 8 GPUs: rows of the busiest sender are held against
// it.
TEST(ClusterCosts, SaysWhatWasNotMeasured) {
  const ClusterCosts costs(cluster());
  const auto group = ranks(8);
  EXPECT_FALSE(costs.outside({CollectiveOp::all_gather, group, uniform(1 << 20)}));
  std::vector<std::uint32_t> rows(64, 0);
  const sim::CollectiveShape shape{
      CollectiveOp::all_to_all, group, {.kind = sim::Traffic::Kind::matrix, .bytes = 1 << 20, .rows = rows}};
  rows[8 * 3 + 1] = 1 << 10;  // rank 3 sends 1 GiB
  EXPECT_FALSE(costs.outside(shape));
  rows[8 * 3 + 2] = 1 << 20;  // and 1 TiB
  const auto outside = costs.outside(shape);
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->measured.quantity, "bytes");
  EXPECT_EQ(outside->value, static_cast<double>((std::uint64_t{1} << 40) + (1 << 30)));
}

}  // namespace
}  // namespace moesim::models
