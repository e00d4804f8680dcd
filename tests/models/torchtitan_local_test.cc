// torchtitan without expert parallelism (docs/spec.md 2.5).
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// The tokens of rank 0 of example 1 on a rank by itself: n = [5 3 2 2 1 1 1 1].
Routing one_rank() { return Routing::from_choices(8, 2, {{0, 1, 0, 2, 0, 3, 1, 4, 0, 5, 2, 6, 0, 7, 1, 3}}); }

TEST(TorchtitanLocal, NeitherExchangesNorWaits) {
  const Example example(one_rank(), 1);
  const Program p = build("torchtitan-local", example.layer);
  EXPECT_TRUE(messages(p.forward()).empty());
  EXPECT_TRUE(messages(p.backward()).empty());
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  EXPECT_EQ(p.host_syncs(p.backward()), 0);
  EXPECT_EQ(p.computed_rows, Numbers{16});
  EXPECT_EQ(product_rows(p, "fc2", 0), (Numbers{5, 3, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(product_launches(p.forward()), 3);  // w1, w3, w2
  EXPECT_EQ(product_launches(p.backward()), 6);
}

TEST(TorchtitanLocal, ALoopLaunchesThreeProductsForEachExpertAndReadsTheirCounts) {
  const Example example(one_rank(), 1);
  const Program p = build("torchtitan-local:experts=loop", example.layer);
  EXPECT_EQ(product_launches(p.forward()), 3 * 8);
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
}

// T*w + T*K*(8+8+b_p) + T*K*(w + 4*F*b + H*4); one F*b less where silu and product are one kernel, and H*b
// instead of H*4 where scores multiply in the rows' dtype.
TEST(TorchtitanLocal, KeepsNoPermutation) {
  const Example example(one_rank(), 1);
  EXPECT_EQ(build("torchtitan-local", example.layer).saved_bytes,
            Numbers{8 * 32 + 16 * 20 + 16 * (32 + 4 * 64 + 64)});
  EXPECT_EQ(build("torchtitan-local:fused_activation=true:score_fp32=false", example.layer).saved_bytes,
            Numbers{8 * 32 + 16 * 20 + 16 * (32 + 3 * 64 + 32)});
}

TEST(TorchtitanLocal, SortsInt64KeysInEightPasses) {
  const Example example(one_rank(), 1);
  const Program p = build("torchtitan-local", example.layer);
  const Op sort = the(p.forward(), "sort by expert");
  EXPECT_EQ(sort.launches, 8);
  EXPECT_EQ(p.value(sort.read, 0), 8 * 16 * (8 + 8));
}

TEST(TorchtitanLocal, IsForOneRank) {
  const Example example;
  EXPECT_EQ(rule("torchtitan-local", example.layer), "it is for ep 1: every rank holds all experts");
  const Example split(Routing::from_choices(8, 2, {{0, 1}, {2, 3}}), 1, 2);
  EXPECT_EQ(rule("torchtitan-local", split.layer), "torchtitan does not split experts over etp");
}

}  // namespace
}  // namespace moesim::models::testing
