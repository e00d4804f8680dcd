// MegaBlocks MoE with a capacity (docs/spec.md 2.12): the receiver drops what overflows.
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// C = int(cf*K*rows*W/E): 16 with the T*K rows that the parallel path counts, 8 with tokens. N = [19 11 9 5 6
// 5 5 4]: 3 rows are above 16; 11 + 3 + 1 above 8.
TEST(MegablocksMoe, Example1) {
  const Example example;
  const Program p = build("megablocks-moe", example.layer),
                nominal = build("megablocks-moe:nominal_capacity=true", example.layer);
  EXPECT_EQ(p.dropped_rows, 64 - 61);
  EXPECT_EQ(p.computed_rows, Numbers(4, 2 * 16));
  EXPECT_EQ(nominal.dropped_rows, 64 - 49);
  EXPECT_EQ(nominal.computed_rows, Numbers(4, 2 * 8));
  for (const Op& op : p.forward())
    if (op.kind == OpKind::kGemm) {
      EXPECT_EQ(op.backend, GemmBackend::kBatched);
    }
  EXPECT_EQ(product_launches(p.forward()), 3);  // three matrices, all experts at once
}

// Every row travels, whatever the capacity (identity 12).
TEST(MegablocksMoe, CapacityDoesNotReduceTheWire) {
  const Example example;
  const Program tight = build("megablocks-moe:capacity_factor=0.25", example.layer),
                dropless = build("megablocks-dmoe-grouped", example.layer);
  EXPECT_GT(tight.dropped_rows, 0);
  EXPECT_EQ(total_tx(tight, tight.forward()), total_tx(dropless, dropless.forward()));
}

TEST(MegablocksMoe, ACapacityOfZeroIsEachRanksLargestCount) {
  const Example example;
  const Program p = build("megablocks-moe:capacity_factor=0", example.layer);
  EXPECT_EQ(p.computed_rows, (Numbers{2 * 19, 2 * 9, 2 * 6, 2 * 5}));
  EXPECT_EQ(p.dropped_rows, 0);
  EXPECT_EQ(p.host_syncs(p.forward()), 3);  // the counts of both sides, and the largest
  EXPECT_EQ(
      build("megablocks-moe", example.layer).host_syncs(build("megablocks-moe", example.layer).forward()), 2);
}

// Alone: no exchange, and the capacity counts tokens.
TEST(MegablocksMoe, OnOneRank) {
  const Example example(Routing::from_choices(8, 2, {{0, 1, 0, 2, 0, 3, 1, 4, 0, 5, 2, 6, 0, 7, 1, 3}}), 1);
  const Program p = build("megablocks-moe", example.layer);
  EXPECT_TRUE(messages(p.forward()).empty());
  EXPECT_EQ(p.computed_rows, Numbers{8 * 2});  // C = int(2*8/8)
  EXPECT_EQ(p.dropped_rows, 3 + 1);            // n = [5 3 2 2 1 1 1 1]
}

TEST(MegablocksMoe, RefusesRanksOfUnequalLength) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}}));
  EXPECT_EQ(rule("megablocks-moe", uneven.layer),
            "it needs the same number of tokens on every rank for one capacity");
}

}  // namespace
}  // namespace moesim::models::testing
