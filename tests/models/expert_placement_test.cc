#include "models/routing/expert_placement.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(ExpertPlacement, IdentityChangesNothing) {
  const Routing routing = example_1();
  ExpertPlacement identity{std::vector<std::int32_t>(8)};
  std::iota(identity.expert_of.begin(), identity.expert_of.end(), 0);
  const Routing same = placed(routing, identity);
  EXPECT_EQ(same.expert_totals(), routing.expert_totals());
  EXPECT_EQ(same.dedup_matrix(4), routing.dedup_matrix(4));
}

TEST(ExpertPlacement, BalancesLoadAndKeepsRows) {
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

// The example of deepseek-ai/EPLB's README: two layers of 12 experts in 4 groups, 16 slots on 8 GPUs of 2
// nodes, and what it prints for them.
TEST(ExpertPlacement, KeepsGroupsOnANodeAsEplbDoes) {
  const auto of_ranks = [](std::vector<std::int32_t> slots) {
    for (std::size_t r = 0; r < slots.size(); r += 2)
      std::sort(slots.begin() + static_cast<std::ptrdiff_t>(r),
                slots.begin() + static_cast<std::ptrdiff_t>(r + 2));
    return slots;
  };
  const std::vector<std::int64_t> first{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
      second{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  EXPECT_EQ(of_ranks(hierarchical_placement(first, 8, 16, 4, 2).expert_of),
            of_ranks({5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  EXPECT_EQ(of_ranks(hierarchical_placement(second, 8, 16, 4, 2).expert_of),
            of_ranks({7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
  // Nodes that do not divide the groups: as without groups.
  EXPECT_EQ(hierarchical_placement(first, 8, 16, 3, 2).expert_of, balanced_placement(first, 8, 16).expert_of);
}

TEST(ExpertPlacement, RefusesWhatDoesNotFit) {
  EXPECT_THROW(balanced_placement({1, 2, 3, 4}, 4, 3), InputError);
  EXPECT_THROW(balanced_placement({1, 2, 3, 4}, 4, 6), InputError);
  EXPECT_THROW(placed(example_1(), ExpertPlacement{{0, 1, 2}}), InputError);
  EXPECT_THROW(placed(example_1(), ExpertPlacement{{0, 1, 2, 3, 4, 5, 6, 8}}), InputError);
}

// Expert 0 has 12 of 24 rows. Six slots on three ranks: it gets both spare slots, so its copies carry 4 rows
// each and the others as many; every rank holds 8.
TEST(ExpertPlacement, ReplicatesTheBusiestByHand) {
  const ExpertPlacement placement = balanced_placement({12, 4, 4, 4}, 3, 6);
  EXPECT_EQ(std::count(placement.expert_of.begin(), placement.expert_of.end(), 0), 3);
  for (std::int32_t e = 1; e < 4; ++e)
    EXPECT_EQ(std::count(placement.expert_of.begin(), placement.expert_of.end(), e), 1);
  // Rows of a replicated expert are dealt out to its slots, starting one further on each source rank.
  const Routing routing = Routing::from_counts(2, 2, 1, {5, 5}, {3, 2, 4, 1});
  const Routing dealt = placed(routing, ExpertPlacement{{0, 1, 0, 0}});
  EXPECT_EQ(std::vector(dealt.counts(0).begin(), dealt.counts(0).end()), (Numbers{1, 2, 1, 1}));
  EXPECT_EQ(std::vector(dealt.counts(1).begin(), dealt.counts(1).end()), (Numbers{1, 1, 2, 1}));
}

// Slots of an expert together have its rows from every rank, and differ by one at most.
RC_GTEST_PROP(ExpertPlacement, EveryRowFindsASlotOfItsExpert, ()) {
  const RandomLayer random = random_layer(false);
  const int experts = random.routing.experts(), ranks = random.routing.ranks();
  const int extra = *rc::gen::inRange(0, 4) * ranks;
  const ExpertPlacement placement =
      balanced_placement(random.routing.expert_totals(), ranks, experts + extra);
  const Routing dealt = placed(random.routing, placement);
  for (int r = 0; r < ranks; ++r)
    for (int e = 0; e < experts; ++e) {
      Numbers slots;
      for (int s = 0; s < experts + extra; ++s)
        if (placement.expert_of[static_cast<std::size_t>(s)] == e) slots.push_back(dealt.count(r, s));
      RC_ASSERT(std::accumulate(slots.begin(), slots.end(), std::int64_t{0}) == random.routing.count(r, e));
      RC_ASSERT(
          *std::max_element(slots.begin(), slots.end()) - *std::min_element(slots.begin(), slots.end()) <= 1);
    }
}

TEST(PlacementSpec, ReadsWhatAUserWrites) {
  EXPECT_FALSE(PlacementSpec().given());
  EXPECT_EQ(PlacementSpec::parse("balanced").slots, 0);
  EXPECT_EQ(PlacementSpec::parse("balanced:slots=12").slots, 12);
  const PlacementSpec list =
      PlacementSpec::parse(JsonNode::parse("[0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 1, 2]", "p.json"));
  EXPECT_EQ(list.make(example_1(), 4).expert_of.size(), 12u);
  EXPECT_THROW(list.make(example_1(), 5), InputError);
  EXPECT_EQ(PlacementSpec::parse("balanced:slots=12").make(example_1(), 4).expert_of.size(), 12u);
  for (const char* wrong : {"", "even", "balanced:12", "balanced:slots=", "balanced:slots=0",
                            "balanced:slots=1x", "balanced:slots=9999999"})
    EXPECT_THROW(PlacementSpec::parse(std::string(wrong)), InputError) << wrong;
  for (const char* wrong : {"[]", "[-1]", "[0.5]", "{}", "\"even\""})
    EXPECT_THROW(PlacementSpec::parse(JsonNode::parse(wrong, "p.json")), InputError) << wrong;
}

}  // namespace
}  // namespace moesim::models::testing
