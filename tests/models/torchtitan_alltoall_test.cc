// torchtitan AlltoAll, normal path (docs/spec.md 2.6): counts, one read, rows; no probabilities, no ids.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(TorchtitanAllToAll, Example1) {
  const Example example;
  const Program p = build("torchtitan-alltoall", example.layer);
  const Numbers received{960, 448, 352, 288}, sent_away{256, 384, 384, 448}, got{704, 320, 224, 224};
  expect_messages(p, p.forward(),
                  {{"counts", {64}, {64}, {48}, {48}},
                   {"tokens", {512}, received, sent_away, got},
                   {"tokens", received, {512}, got, sent_away}});
  expect_messages(p, p.backward(),
                  {{"output gradient", {512}, received, sent_away, got},
                   {"hidden gradient", received, {512}, got, sent_away}});
  EXPECT_EQ(total_tx(p, p.forward()), (Numbers{1008, 752, 656, 720}));
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_EQ(p.host_syncs(p.backward()), 0);
  EXPECT_EQ(product_launches(p.forward()), 3);
}

// A_save of docs/spec.md 2.6.
TEST(TorchtitanAllToAll, KeepsWhatTheFormulaSays) {
  const Example example;
  const std::int64_t T = 8, K = 2, w = 32, H = 16, F = 32, b = 2, bp = 4;
  const Numbers R_d{30, 14, 11, 9};
  const Program eager = build("torchtitan-alltoall", example.layer),
                fused = build("torchtitan-alltoall:fused_activation=true:score_fp32=false", example.layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(eager.saved_bytes[r],
              T * w + T * K * (16 + bp) + R_d[r] * (8 + w) + R_d[r] * F * b * 4 + T * K * H * 4);
    EXPECT_EQ(fused.saved_bytes[r],
              T * w + T * K * (16 + bp) + R_d[r] * (8 + w) + R_d[r] * F * b * 3 + T * K * H * b);
  }
}

TEST(TorchtitanAllToAll, AloneItHandsOverToTheLocalDispatcher) {
  const Example example(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  const Program own = build("torchtitan-alltoall", example.layer),
                local = build("torchtitan-local", example.layer);
  ASSERT_EQ(own.forward().size(), local.forward().size());
  for (std::size_t i = 0; i < own.forward().size(); ++i)
    EXPECT_EQ(own.forward()[i].name, local.forward()[i].name);
  EXPECT_EQ(own.saved_bytes, local.saved_bytes);
}

// Behind a sequence-parallel split the target has the tokens of all ranks that share the sequence.
TEST(TorchtitanAllToAll, ScattersToThePlacesBeforeTheSplit) {
  Example example;
  const Program whole = build("torchtitan-alltoall", example.layer);
  example.layer.tp = 2;
  const Program share = build("torchtitan-alltoall", example.layer);
  EXPECT_FALSE(has(whole.forward(), "positions before the split"));
  EXPECT_TRUE(has(share.forward(), "positions before the split"));
  // Out of place, the target is copied first: twice T (or 2T) rows are written.
  EXPECT_EQ(numbers(whole, the(whole.forward(), "scatter_add").written), Numbers(4, 2 * 8 * 32));
  EXPECT_EQ(numbers(share, the(share.forward(), "scatter_add").written), Numbers(4, 2 * 16 * 32));
  EXPECT_EQ(total_tx(whole, whole.forward()), total_tx(share, share.forward()));
}

TEST(TorchtitanAllToAll, CountsOfTheRouterSpareTheHistogram) {
  Example example;
  EXPECT_TRUE(has(build("torchtitan-alltoall", example.layer).forward(), "count rows per expert"));
  EXPECT_FALSE(
      has(build("torchtitan-alltoall:counts=router", example.layer).forward(), "count rows per expert"));
  example.layer.tp = 2;
  EXPECT_EQ(
      rule("torchtitan-alltoall:counts=router", example.layer),
      "counts=router has no effect behind a sequence-parallel split: every rank counts its share again");
}

TEST(TorchtitanAllToAll, RefusesWhatHasNoEffect) {
  Example example;
  EXPECT_EQ(rule("torchtitan-alltoall:experts=fork:contiguous=true", example.layer),
            "contiguous has no effect behind an exchange: the permutation writes its rows anew");
  EXPECT_EQ(rule("torchtitan-alltoall:experts=batched", example.layer),
            "experts=batched needs a pass without gradients: the cached weight layouts have none");
  example.layer.train = false;
  EXPECT_EQ(rule("torchtitan-alltoall:experts=batched", example.layer),
            "experts=batched needs the same number of rows for every local expert of a rank");
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

}  // namespace
}  // namespace moesim::models::testing
