#include <gtest/gtest.h>

#include "base/input_error.h"
#include "models/routing/expert_placement.h"
#include "models/routing/scaling_mode.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(Placement, IdentityChangesNothing) {
  const Routing routing = example_1();
  const Routing same = placed(routing, identity_placement(8));
  EXPECT_EQ(same.expert_totals(), routing.expert_totals());
  EXPECT_EQ(same.dedup_matrix(4), routing.dedup_matrix(4));
}

TEST(Placement, BalancesLoadAndKeepsRows) {
  const Routing routing = make_routing(RoutingSpec::parse("zipf:1.0"), 8, 4096, 64, 4, 1);
  const auto totals = routing.expert_totals();
  const Routing spread = placed(routing, balanced_placement(totals, 8, 64));
  const Routing replicated = placed(routing, balanced_placement(totals, 8, 80));
  EXPECT_LT(spread.rank_imbalance(8), routing.rank_imbalance(8));
  EXPECT_LE(replicated.rank_imbalance(8), spread.rank_imbalance(8) + 1e-9);
  EXPECT_LT(replicated.rank_imbalance(8), 1.05);
  for (int r = 0; r < 8; ++r) EXPECT_EQ(replicated.rows(r), routing.rows(r));
  const Routing chosen = placed(example_1(), balanced_placement(example_1().expert_totals(), 4, 12));
  EXPECT_EQ(chosen.experts(), 12);
  EXPECT_TRUE(chosen.has_choices());
  EXPECT_EQ(chosen.rows(0), 16);
}

TEST(Placement, RefusesWhatDoesNotFit) {
  EXPECT_THROW(balanced_placement({1, 2, 3, 4}, 4, 3), InputError);
  EXPECT_THROW(balanced_placement({1, 2, 3, 4}, 4, 6), InputError);
  EXPECT_THROW(placed(example_1(), Placement{{0, 1, 2}}), InputError);
  EXPECT_THROW(placed(example_1(), Placement{{0, 1, 2, 3, 4, 5, 6, 8}}), InputError);
}

std::vector<ScalingRank> sent_by_example_1() {
  const Routing routing = example_1();
  std::vector<ScalingRank> ranks(4);
  for (int r = 0; r < 4; ++r) ranks[r].sent.assign(routing.counts(r).begin(), routing.counts(r).end());
  return ranks;
}

TEST(ScalingMode, RowsOfAnExpertRank) {
  std::vector<ScalingRank> ranks = sent_by_example_1();
  EXPECT_EQ(scaling_rows(ranks, 0, 8, {}).rows, (Numbers{19, 11}));
  ranks[1].received = {9, 5};
  EXPECT_EQ(scaling_rows(ranks, 1, 8, {}).rows, (Numbers{9, 5}));
  EXPECT_EQ(scaling_rows(ranks, 1, 8, {}).warning, "");
}

TEST(ScalingMode, FallbackSaysSo) {
  const ScalingRows rows = scaling_rows(std::vector<ScalingRank>(4), 1, 8, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(rows.rows, (Numbers{3, 4}));
  EXPECT_NE(rows.warning.find("not representative"), std::string::npos);
}

TEST(ScalingMode, SentIsNotReceived) {
  std::vector<ScalingRank> ranks = sent_by_example_1();
  ranks[0].received = {5, 3};  // what rank 0 sends to its own experts
  EXPECT_THROW(scaling_rows(ranks, 0, 8, {}), InputError);
  ranks[0].received = {5, 3, 2};
  EXPECT_THROW(scaling_rows(ranks, 0, 8, {}), InputError);
  EXPECT_THROW(scaling_rows(ranks, 4, 8, {}), InputError);
  EXPECT_THROW(scaling_rows(std::vector<ScalingRank>(4), 0, 8, {1, 2}), InputError);
}

TEST(ScalingMode, LabelsAreResolvedByOperation) {
  EXPECT_EQ(group_of_label("exp", "all_to_all"), GroupKind::kEp);
  EXPECT_EQ(group_of_label("exp", "allgather"), GroupKind::kTpEp);
  EXPECT_EQ(group_of_label("exp", "reduce_scatter"), GroupKind::kTpEp);
  EXPECT_EQ(group_of_label("dp", "allreduce"), std::nullopt);
}

}  // namespace
}  // namespace moesim::models::testing
