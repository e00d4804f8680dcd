#include "models/routing/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/input_error.h"
#include "tests/models/layers.h"

namespace moesim::models {
namespace {

TEST(Routing, GroupLimitBoundsNodes) {
  // DeepSeek-V3: 8 groups of 32 experts, a token uses 4 of them.
  Routing routing = make_routing(RoutingSpec(), 64, 4096, 256, 8, 1);
  const auto nodes = [&] {
    const auto D = routing.dedup_matrix(8);
    return static_cast<double>(std::accumulate(D.begin(), D.begin() + 8, std::int64_t{0})) / 4096;
  };
  EXPECT_NEAR(nodes(), 5.295, 0.01);  // C(224,8)/C(256,8)
  routing.set_group_limit(8, 4);
  EXPECT_LE(nodes(), 4);
  EXPECT_NEAR(nodes(), 4 * (1 - 0.0898), 0.05);  // C(96,8)/C(128,8)
}

// docs/spec.md 6.3, example 1.
TEST(Routing, CountsSplitsAndCopiesOfExample1) {
  const Routing routing = testing::example_1();
  const testing::Numbers n{5, 3, 2, 2, 1, 1, 1, 1, 5, 3, 3, 1, 1, 1, 1, 1,
                           4, 2, 2, 1, 2, 2, 2, 1, 5, 3, 2, 1, 2, 1, 1, 1};
  for (int r = 0; r < 4; ++r)
    for (int e = 0; e < 8; ++e) EXPECT_EQ(routing.count(r, e), n[r * 8 + e]);
  EXPECT_EQ(routing.expert_totals(), (testing::Numbers{19, 11, 9, 5, 6, 5, 5, 4}));
  EXPECT_EQ(routing.split_matrix(4), (testing::Numbers{8, 4, 2, 2, 8, 4, 2, 2, 6, 3, 4, 3, 8, 3, 3, 2}));
  EXPECT_EQ(routing.dedup_matrix(4), (testing::Numbers{7, 4, 2, 2, 6, 3, 1, 2, 4, 3, 4, 3, 6, 3, 3, 2}));
  EXPECT_DOUBLE_EQ(routing.rank_imbalance(4), 1.875);
}

// Example 3: both experts of a token are on the same rank.
TEST(Routing, RoundRobinIsBalancedAndItsCopiesAreKnown) {
  const Routing routing = testing::example_3();
  EXPECT_EQ(routing.split_matrix(4), testing::Numbers(16, 4));
  EXPECT_EQ(routing.dedup_matrix(4), testing::Numbers(16, 2));
}

TEST(Routing, CapacityDropsByPosition) {
  const Routing routing = Routing::from_choices(2, 1, {{0, 0, 1, 0}});
  const Routing limited = routing.limited_to({2});
  EXPECT_EQ(limited.count(0, 0), 2);
  EXPECT_THAT(limited.choices(0), ::testing::ElementsAre(0, 0, 1, -1));
  EXPECT_EQ(routing.padded_to(4).count(0, 1), 4);
}

TEST(Routing, RejectsImpossibleCounts) {
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {5, 0}), InputError);
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {-1, 0}), InputError);
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {4, 4}), InputError);
  EXPECT_THROW(Routing::from_choices(2, 2, {{0, 0}}), InputError);
  EXPECT_THROW(Routing::from_choices(2, 2, {{0, 2}}), InputError);
}

}  // namespace
}  // namespace moesim::models
