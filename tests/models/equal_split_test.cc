// Padded chunks of an equal all-to-all (docs/spec.md 2.7): width, overheads, and the kernels around it.
#include "models/dispatchers/parts/equal_split.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

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
