// Megatron Flex with HybridEP (docs/spec.md 2.4): the map is gathered, rows arrive expert-major.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(FlexHybridEp, Example1) {
  const Example example;
  const Program p = build("flex-hybridep", example.layer);
  const Op map = the(p.forward(), "routing map"), tokens = named(p.forward(), "tokens").front(),
           probabilities = the(p.forward(), "probabilities");
  EXPECT_EQ(numbers(p, map.in), Numbers(4, 8 * 8));  // T*R*E_l flags
  EXPECT_EQ(numbers(p, map.tx), Numbers(4, 3 * 8 * 8));
  EXPECT_EQ(numbers(p, tokens.tx), (Numbers{256, 288, 320, 384}));
  EXPECT_EQ(numbers(p, tokens.rx), (Numbers{512, 320, 192, 224}));
  EXPECT_EQ(tokens.library, ExchangeLibrary::kHybridEp);
  EXPECT_EQ(probabilities.row_bytes, 2 * 4 * 4);  // E_l * ranks of the node * fp32
  EXPECT_TRUE(probabilities.fused);
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_EQ(messages(p.backward()).size(), 3u);  // output gradient, hidden gradient and its probabilities
}

// N_buf = T*R rows of w bytes and of probabilities; over two nodes T rows more are staged for the network.
TEST(FlexHybridEp, HoldsItsWorstCaseAllTheTime) {
  Example example;
  EXPECT_EQ(build("flex-hybridep", example.layer).persistent_bytes, 32 * (32 + 2 * 4 * 4));
  example.layer.ranks_per_node = 2;
  EXPECT_EQ(build("flex-hybridep", example.layer).persistent_bytes, (32 + 8) * (32 + 2 * 2 * 4));
}

TEST(FlexHybridEp, StaticBudgetDropsWhatIsAbove) {
  const Example example(example_2());
  const Program p = build("flex-hybridep:mode=static:rank_capacity_factor=2", example.layer);
  EXPECT_EQ(p.computed_rows, (Numbers{32, 0, 0, 0}));  // T*K*2 of the 64 that arrive
  EXPECT_EQ(p.dropped_rows, 32);
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  EXPECT_EQ(p.warnings,
            std::vector<std::string>{"32 rows above the static budget of 32 rows per rank are dropped"});
  // The first expert fills the buffer, the last ones get nothing.
  EXPECT_EQ(product_rows(p, "fc1", 0), (Numbers{32, 0}));
  const Program hybrid = build("flex-hybridep", example.layer);
  EXPECT_EQ(hybrid.host_syncs(hybrid.forward()), 1);
}

TEST(FlexHybridEp, DropAndPadComputesTheCapacityOfAllRanks) {
  const Example example;
  const Program p = build("flex-hybridep:mode=pad", example.layer);
  EXPECT_EQ(p.computed_rows, Numbers(4, 2 * 4 * 2));  // E_l * R * C, C = 2
  EXPECT_EQ(p.dropped_rows, 64 - 49);                 // as AlltoAll with the same capacity
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
}

TEST(FlexHybridEp, AlignsTheRowsOfAnExpert) {
  const Example example;
  EXPECT_EQ(build("flex-hybridep:align=16", example.layer).computed_rows, (Numbers{48, 32, 32, 32}));
}

// Ranks of unequal length agree on the longest, rounded up to 64 tokens.
TEST(FlexHybridEp, UnevenRanksAskForTheLongest) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}}));
  const Program p = build("flex-hybridep", uneven.layer);
  const Op longest = messages(p.forward()).front();
  EXPECT_EQ(longest.name, "longest rank");
  EXPECT_EQ(numbers(p, longest.in), Numbers(4, 8));
  EXPECT_EQ(numbers(p, the(p.forward(), "routing map").in), Numbers(4, 64 * 8));
  EXPECT_EQ(p.host_syncs(p.forward()), 2);
}

TEST(FlexHybridEp, RefusesOptionsOfOtherModes) {
  EXPECT_EQ(
      refusal("flex-hybridep:rank_capacity_factor=2"),
      "--dispatcher: dispatcher flex-hybridep: found rank_capacity_factor, expected mode=static: only a "
      "static budget has one");
  EXPECT_EQ(
      refusal("flex-hybridep:capacity_factor=2"),
      "--dispatcher: dispatcher flex-hybridep: found capacity_factor, expected mode=pad: only drop-and-pad "
      "has a capacity per expert");
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}}));
  EXPECT_EQ(rule("flex-hybridep:mode=pad", uneven.layer),
            "mode=pad needs the same number of tokens on every rank: all must agree on the capacity");
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

}  // namespace
}  // namespace moesim::models::testing
