// Rows of a fixed size: the capacity of an expert (docs/spec.md 2.2.3) and what it drops, C rows from every rank to
// every expert (2.13), padded chunks of an equal all-to-all (2.7) and the kernels around it.
#include "models/dispatchers/parts/capacity.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "models/dispatchers/parts/equal_split.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(Capacity, IsRoundedUpButNotForRounding) {
  EXPECT_EQ(capacity(8, 2, 8, 1), 2);      // 16 / 8
  EXPECT_EQ(capacity(8, 2, 8, 1.25), 3);   // 2.5
  EXPECT_EQ(capacity(10, 1, 1, 1.1), 11);  // 11.000000000000002 in doubles
  EXPECT_EQ(capacity(0, 2, 8, 1), 0);
  EXPECT_EQ(capacity(1, 1, 64, 0.01), 1);
}

RC_GTEST_PROP(Capacity, HoldsAllRowsAndNotARowMore, ()) {
  const std::int64_t tokens = *rc::gen::inRange(0, 5000), topk = *rc::gen::inRange(1, 9),
                     experts = *rc::gen::inRange(1, 300), quarters = *rc::gen::inRange(1, 40);
  const std::int64_t C = capacity(tokens, topk, experts, static_cast<double>(quarters) / 4);
  RC_ASSERT(4 * C * experts >= tokens * topk * quarters);
  RC_ASSERT(4 * (C - 1) * experts < tokens * topk * quarters || C == 0);
}

TEST(Capacity, IsOfEveryRanksOwnTokens) {
  const Routing uneven = Routing::from_choices(2, 2, {{0, 1}, {0, 1, 0, 1, 0, 1}, {}});
  EXPECT_EQ(capacities(uneven, 1), (Numbers{1, 3, 0}));
  EXPECT_EQ(capacities(uneven, 0.5), (Numbers{1, 2, 0}));
}

TEST(TotalDropped, CountsWhatIsLessAndNothingElse) {
  const Routing routing = example_1();
  EXPECT_EQ(total_dropped(routing, routing), 0);
  EXPECT_EQ(total_dropped(routing, routing.limited_to({2, 2, 2, 2})), 64 - 49);
  EXPECT_EQ(total_dropped(routing, routing.limited_to({5, 5, 5, 4})), 1);
  EXPECT_EQ(total_dropped(routing, routing.padded_to(4)), 0);  // more rows are no dropped ones
}

TEST(FixedCapacity, SizesAreTheCapacitysWhateverTheRouting) {
  const Example skewed, one_rank(example_2());
  for (const Example* example : {&skewed, &one_rank}) {
    const FixedCapacity fixed(example->layer, 3);
    EXPECT_EQ(fixed.rows, 8 * 3);
    EXPECT_EQ(fixed.sizes.sent, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.arrived, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.computed, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.experts, Numbers(8, 4 * 3));  // EP * C of each of R * E_l
    EXPECT_EQ(fixed.sizes.tokens, Numbers(4, 8));
  }
  // n = [5 3 ..; 5 3 3 ..; 4 ..; 5 3 ..]: 2 + 2 + 1 + 2 rows are above 3; of example 2 two times 8 - 3 per
  // rank.
  EXPECT_EQ(FixedCapacity(skewed.layer, 3).dropped, 2 + 2 + 1 + 2);
  EXPECT_EQ(FixedCapacity(one_rank.layer, 3).dropped, 4 * 2 * 5);
}

TEST(FixedCapacity, TheLargestCountDropsNothing) {
  const Example example;
  EXPECT_EQ(FixedCapacity::largest_count(example.routing), 5);
  EXPECT_EQ(FixedCapacity(example.layer, 5).dropped, 0);
  EXPECT_EQ(FixedCapacity(example.layer, 4).dropped, 3);
}

TEST(FixedCapacity, NeedsOneCapacityOfWholeExperts) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}})),
      split(example_1(), 2, 2), fine;
  EXPECT_EQ(FixedCapacity::illegal(uneven.layer).value_or(""),
            "every rank must hold the same number of tokens: all must agree on the capacity");
  EXPECT_EQ(FixedCapacity::illegal(split.layer).value_or(""),
            "it does not split experts over etp where every rank holds its own tokens");
  EXPECT_FALSE(FixedCapacity::illegal(fine.layer));
}

TEST(EqualSplit, OverheadsOfTheExamples) {
  const Example one, two(example_2()), three(example_3());
  const EqualSplit split{LayerSizes(one.layer)};
  EXPECT_EQ(split.m, 8);
  const std::vector<double> expected{0.391, 1.133, 1.370, 1.560};
  for (int r = 0; r < 4; ++r) EXPECT_NEAR(split.overheads[r], expected[r], 5e-4);
  EXPECT_EQ(split.worst(), split.overheads[3]);
  const EqualSplit everything{LayerSizes(two.layer)};
  EXPECT_EQ(everything.m, 16);
  EXPECT_NEAR(everything.overheads[0], 0.6, 1e-12);
  EXPECT_NEAR(everything.overheads[1], 7, 1e-12);
  EXPECT_EQ(EqualSplit{LayerSizes(three.layer)}.worst(), 0);
}

// A rank that neither sends nor receives has nothing to compare padding with.
TEST(EqualSplit, ARankWithoutRowsForbidsAnyThreshold) {
  const Example example(Routing::from_choices(8, 2, {{0, 1}, {0, 1}, {0, 1}, {}}));
  const EqualSplit split{LayerSizes(example.layer)};
  EXPECT_TRUE(std::isinf(split.overheads[3]));
  EXPECT_TRUE(std::isinf(split.worst()));
}

// One exchange of m = 2 rows of 32 bytes to each of 2 ranks; rank 0 sends 2+1 rows and receives 2+0.
Program one_exchange(Padding padding, bool there) {
  const Example example(Routing::from_choices(4, 1, {{0, 1, 2}, {3}}), 2);
  const LayerSizes sizes(example.layer);
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  EqualSplit(sizes).exchange(b, "rows", Category::dispatch, DType::kBf16, sizes, there, padding);
  return b.finish();
}

TEST(EqualSplit, PadsInOnePassOrConcatenatesZeros) {
  const Program pad = one_exchange(Padding::kPad, true), cat = one_exchange(Padding::kConcatenate, true);
  for (const Program* p : {&pad, &cat})
    expect_messages(*p, p->forward(), {{"rows", {2 * 2 * 32}, {2 * 2 * 32}, {2 * 32}, {2 * 32}}});
  EXPECT_EQ(numbers(pad, the(pad.forward(), "pad chunks").read), (Numbers{3 * 32, 1 * 32}));
  EXPECT_EQ(numbers(pad, the(pad.forward(), "pad chunks").written), Numbers(2, 4 * 32));
  EXPECT_EQ(numbers(cat, the(cat.forward(), "rows of zeros").written), (Numbers{1 * 32, 3 * 32}));
  EXPECT_EQ(numbers(cat, the(cat.forward(), "chunks with their zeros").read), Numbers(2, 4 * 32));
}

TEST(EqualSplit, CompactsByTheOtherSidesSplits) {
  const Program there = one_exchange(Padding::kPad, true), back = one_exchange(Padding::kPad, false);
  EXPECT_EQ(numbers(there, the(there.forward(), "compact chunks").written), (Numbers{2 * 32, 2 * 32}));
  EXPECT_EQ(numbers(back, the(back.forward(), "pad chunks").read), (Numbers{2 * 32, 2 * 32}));
  EXPECT_EQ(numbers(back, the(back.forward(), "compact chunks").written), (Numbers{3 * 32, 1 * 32}));
  // Padded rows on both sides at once, nothing afterwards.
  EXPECT_EQ(there.peak_forward_bytes, Numbers(2, 2 * 4 * 32));
  EXPECT_EQ(there.saved_bytes, Numbers(2, 0));
}

}  // namespace
}  // namespace moesim::models::testing
