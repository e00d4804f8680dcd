// Laws of single dispatchers over random layers, and what their worked examples (tests/models/cases/) do not show.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/dispatchers/parts/megablocks.h"
#include "models/dispatchers/parts/torchtitan.h"
#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// More capacity never drops more, nor moves less; enough of it is the dropless program.
RC_GTEST_PROP(MegatronAllToAll, CapacityIsMonotonic, ()) {
  const RandomLayer random = random_layer(true);
  std::int64_t dropped = random.routing.ranks() * random.routing.tokens(0) * random.routing.topk(), moved = 0;
  for (const char* factor : {"0.5", "1", "2", "1000"}) {
    const Program p = build(std::string("alltoall:capacity_factor=") + factor, random.layer);
    std::int64_t rows = 0;
    for (const std::int64_t n : p.computed_rows) rows += n;
    RC_ASSERT(p.dropped_rows <= dropped);
    RC_ASSERT(rows >= moved);
    dropped = p.dropped_rows;
    moved = rows;
  }
  RC_ASSERT(dropped == 0);
  RC_ASSERT(total_tx(build("alltoall:capacity_factor=1000", random.layer),
                     build("alltoall:capacity_factor=1000", random.layer).forward()) ==
            total_tx(build("alltoall", random.layer), build("alltoall", random.layer).forward()));
}

// Whatever the routing: no more rows than AlltoAll moves, nor than AllGather does (identity 7).
RC_GTEST_PROP(FlexDeepEp, NeverSendsMoreRowsThanOthers, ()) {
  const RandomLayer random = random_layer(false);
  if (random.layer.ep == 1) return;
  const Program flex = build("flex-deepep", random.layer), rows = build("alltoall", random.layer),
                all = build("allgather", random.layer);
  const Numbers sent = numbers(flex, named(flex.forward(), "tokens").front().tx),
                most = numbers(rows, messages(rows.forward())[1].tx),
                gathered = numbers(all, the(all.forward(), "hidden states").tx);
  for (std::size_t r = 0; r < sent.size(); ++r) {
    RC_ASSERT(sent[r] <= most[r]);
    RC_ASSERT(sent[r] <= gathered[r]);
  }
}

// A larger budget never drops more; one for everything drops nothing.
RC_GTEST_PROP(FlexHybridEp, BudgetIsMonotonic, ()) {
  RandomLayer random = random_layer(true);
  if (random.layer.ranks() == 1) return;
  random.layer.ranks_per_node = random.layer.ranks();
  std::int64_t before = -1;
  for (const char* factor : {"1000", "2", "1", "0.5"}) {
    const Program p =
        build(std::string("flex-hybridep:mode=static:rank_capacity_factor=") + factor, random.layer);
    if (before < 0) RC_ASSERT(p.dropped_rows == 0);
    RC_ASSERT(p.dropped_rows >= before);
    before = p.dropped_rows;
  }
}

// (E-E_l)*C*w over the wire, whatever the routing; nothing is dropped where no count is above C.
RC_GTEST_PROP(DeepSpeed, VolumeFollowsFromTheCapacity, ()) {
  const RandomLayer random = random_layer(false);
  if (random.layer.ep == 1) return;
  const std::int64_t C = *rc::gen::inRange(1, 30);
  const Program p =
      build("deepspeed:capacity_factor=0.000001:min_capacity=" + std::to_string(C), random.layer);
  const std::int64_t away = random.routing.experts() - random.layer.local_experts();
  std::int64_t over = 0;
  for (int r = 0; r < p.ranks(); ++r) {
    RC_ASSERT(p.value(messages(p.forward())[0].tx, r) == away * C * random.layer.hidden * 2);
    for (const std::int64_t n : random.routing.counts(r)) over += std::max<std::int64_t>(0, n - C);
  }
  RC_ASSERT(p.dropped_rows == over);
}

// Rows travel as Megatron's do, without their probabilities.
RC_GTEST_PROP(TorchtitanAllToAll, RowsAreMegatrons, ()) {
  const RandomLayer random = random_layer(false);
  if (random.layer.ep == 1) return;
  const Program titan = build("torchtitan-alltoall", random.layer),
                megatron = build("alltoall", random.layer);
  for (const std::size_t i : {0u, 1u})
    RC_ASSERT(numbers(titan, named(titan.forward(), "tokens")[i].tx) ==
              numbers(megatron, named(megatron.forward(), "tokens")[i].tx));
  RC_ASSERT(titan.computed_rows == megatron.computed_rows);
}

// Identities 9 and 10 in bytes: padding moves at least what the busiest rank sends or receives without it,
// the same on every rank.
RC_GTEST_PROP(TorchtitanEqualSplit, PaddingNeverMovesLess, ()) {
  const RandomLayer random = random_layer(false, false);
  if (random.layer.ep == 1) return;
  const Program padded = build("torchtitan-equal-split", random.layer),
                plain = build("torchtitan-alltoall", random.layer);
  const Op there = named(padded.forward(), "tokens")[0], uneven = named(plain.forward(), "tokens")[0];
  for (int r = 0; r < padded.ranks(); ++r) {
    RC_ASSERT(padded.value(there.tx, r) == padded.value(there.tx, 0));
    RC_ASSERT(padded.value(there.tx, r) >= plain.value(uneven.tx, r));
    RC_ASSERT(padded.value(there.rx, r) >= plain.value(uneven.rx, r));
  }
}

TEST(TorchtitanSteps, UniformCountsAreThoseOfARank) {
  const Example one, three(example_3());
  const LayerSizes skewed(one.layer), balanced(three.layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_FALSE(uniform_on(skewed, r));  // 19 11 | 9 5 | 6 5 | 5 4
    EXPECT_TRUE(uniform_on(balanced, r));
  }
  EXPECT_FALSE(uniform_on_every_rank(skewed));
  EXPECT_TRUE(uniform_on_every_rank(balanced));
  const Example own(Routing::from_choices(4, 2, {{0, 1, 0, 1}, {0, 1, 2, 3}}), 2);
  EXPECT_TRUE(uniform_on_every_rank(LayerSizes(own.layer)));
}

// Operations, bytes and memory equal those of Megatron's AllGather in a plan with EP 1 and ETP R.
RC_GTEST_PROP(ExpertTp, IsAllGatherWithEpOne, ()) {
  const RandomLayer random = random_layer(true);
  MoeLayer layer = random.layer;
  RC_PRE(layer.ep > 1);
  layer.expert_ffn = 8 * layer.ranks();
  MoeLayer plan = layer;
  plan.ep = 1;
  plan.etp = layer.ranks();
  const Program a = build("expert-tp", layer), b = build("allgather", plan);
  RC_ASSERT(total_tx(a, a.forward()) == total_tx(b, b.forward()));
  RC_ASSERT(total_tx(a, a.backward()) == total_tx(b, b.backward()));
  RC_ASSERT(a.saved_bytes == b.saved_bytes);
  RC_ASSERT(a.peak_backward_bytes == b.peak_backward_bytes);
  RC_ASSERT(a.computed_rows == b.computed_rows);
  RC_ASSERT(a.forward().size() == b.forward().size());
}

MegablocksOptions options_of(std::map<std::string, std::string, std::less<>> values = {}) {
  DispatcherOptions options("megablocks", std::move(values), "test");
  return MegablocksOptions(options);
}

// Two experts on four ranks: esd = 2, hsd = 2. Rank j hosts expert j mod 2, hidden slice j div 2. Every rank
// sends 3 rows to expert 0 and 1 to expert 1, twice.
TEST(MegablocksFigures, HiddenSlicesGetTheSameRows) {
  const std::vector<std::int32_t> own{0, 0, 0, 1};
  const Example example(Routing::from_choices(2, 1, {own, own, own, own}));
  const MegablocksFigures f(example.layer, options_of());
  EXPECT_EQ(f.esd, 2);
  EXPECT_EQ(f.hsd, 2);
  EXPECT_EQ(f.E_pr, 1);
  EXPECT_EQ(f.F_pr, 16);
  EXPECT_EQ(f.sent, Numbers(4, 4));
  EXPECT_EQ(f.computed, (Numbers{12, 4, 12, 4}));
  EXPECT_EQ(Numbers(f.splits.begin(), f.splits.begin() + 4), (Numbers{3, 1, 3, 1}));
}

TEST(MegablocksFigures, RoundRobinTakesThePlaceOfTheRouter) {
  const Example example(example_2());
  EXPECT_EQ(MegablocksFigures(example.layer, options_of()).computed, (Numbers{64, 0, 0, 0}));
  EXPECT_EQ(MegablocksFigures(example.layer, options_of({{"uniform_expert_assignment", "true"}})).computed,
            Numbers(4, 16));
}

// Two MoE layers, the graph edge of rule P removed: ranks without rows skip the backward of their dispatch.
TEST(KempnerForge, Example5PositionMatching) {
  const Example example(example_2());
  const Program p = build("kempnerforge:replicated=false", example.layer);
  auto with_edge = issued(p, p.backward(), GroupKind::kEp, 0, "L2 ");
  const auto lower = issued(p, p.backward(), GroupKind::kEp, 0, "L1 ");
  for (std::size_t m = 0; m < 4; ++m)
    with_edge[m].insert(with_edge[m].end(), lower[m].begin(), lower[m].end());
  ASSERT_EQ(with_edge[0].size(), 4u);
  EXPECT_FALSE(match_positions(with_edge));

  auto without = with_edge;
  for (std::size_t m = 1; m < 4; ++m) {
    without[m].erase(without[m].begin() + 3);
    without[m].erase(without[m].begin() + 1);
  }
  const auto mismatch = match_positions(without);
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->position, 2);
  EXPECT_EQ(mismatch->ranks, (std::vector<int>{1, 2, 3}));
  EXPECT_NE(mismatch->text.find("mismatch at position 2, ranks 1-3"), std::string::npos);
  EXPECT_NE(mismatch->text.find("hang"), std::string::npos);
}

}  // namespace
}  // namespace moesim::models::testing
