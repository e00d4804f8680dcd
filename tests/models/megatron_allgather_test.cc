// Megatron AllGather (docs/spec.md 2.1.1): volumes that no routing changes, what is computed and kept.
#include <gtest/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(MegatronAllGather, Example1) {
  const Routing routing = example_1();
  const Program p = build("allgather", example_layer(routing));
  expect_messages(p, p.forward(),
                  {{"routing map", {64}, {256}, {192}, {192}},
                   {"probabilities", {256}, {1024}, {768}, {768}},
                   {"hidden states", {256}, {1024}, {768}, {768}},
                   {"output", {2048}, {512}, {1536}, {1536}}});
  // The gradient of the output is gathered in the router's dtype, those of rows and probabilities are
  // reduced.
  expect_messages(p, p.backward(),
                  {{"output gradient", {512}, {2048}, {1536}, {1536}},
                   {"hidden gradient", {1024}, {256}, {768}, {768}},
                   {"probability gradient", {1024}, {256}, {768}, {768}}});
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 3264));
  EXPECT_EQ(total_tx(p, p.backward()), Numbers(4, 3072));
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.saved_bytes, (Numbers{7656, 3880, 3172, 2700}));
  EXPECT_EQ(p.host_syncs(p.forward()), 2);
  EXPECT_EQ(p.host_syncs(p.backward()), 0);
  EXPECT_EQ(p.persistent_bytes, 4 * 8 * 32);  // one buffer of all rows for all layers

  const Program half = build("allgather", example_layer(routing, 4, 1, DType::kBf16));
  EXPECT_EQ(total_tx(half, half.forward()), Numbers(4, 2112));
  EXPECT_EQ(total_tx(half, half.backward()), Numbers(4, 1920));
  EXPECT_EQ(numbers(half, messages(half.forward()).back().tx), Numbers(4, 768));
  // Rows are cast around the reduce-scatter only where the router's dtype is another.
  EXPECT_TRUE(has(p.forward(), "cast to router dtype"));
  EXPECT_FALSE(has(half.forward(), "cast to router dtype"));
}

TEST(MegatronAllGather, Example2MovesWhatExample1Moves) {
  const Example skewed, one_rank(example_2());
  const Program a = build("allgather", skewed.layer), b = build("allgather", one_rank.layer);
  EXPECT_EQ(numbers(b, messages(b.forward())[2].tx), Numbers(4, 768));
  EXPECT_EQ(total_tx(a, a.forward()), total_tx(b, b.forward()));
  EXPECT_EQ(b.computed_rows, (Numbers{64, 0, 0, 0}));
}

TEST(MegatronAllGather, Example4SumsPartialProductsInTheSameReduceScatter) {
  const Example example(example_1(), 2, 2);
  const Program p = build("allgather", example.layer);
  EXPECT_EQ(p.computed_rows, (Numbers{44, 44, 20, 20}));
  ASSERT_EQ(messages(p.forward()).size(), 4u);  // over all R = ETP*EP ranks, as with EP 4
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 3264));
  EXPECT_EQ(the(p.forward(), "fc2").k, 16);  // F' = F/2
}

TEST(MegatronAllGather, PermutesFusedOrByASort) {
  const Example example;
  const Program fused = build("allgather", example.layer),
                plain = build("allgather:permute_fusion=false", example.layer);
  EXPECT_EQ(fused.value(the(fused.forward(), "row id map").written, 0), 32 * 2 * 4);  // int32 of R*T*E_l
  // R*T*E_l flags of a byte with eight of a value, one pass.
  EXPECT_EQ(numbers(plain, the(plain.forward(), "sort map").read), Numbers(4, 32 * 2 * 9));
  // R_d rows are added to zeros for R*T rows.
  EXPECT_EQ(plain.value(the(plain.forward(), "unpermute").written, 0), 30 * 32 + 32 * 32);
  EXPECT_EQ(fused.value(the(fused.forward(), "unpermute").written, 0), 32 * 32);
  EXPECT_EQ(numbers(plain, the(plain.forward(), "permute").written), (Numbers{960, 448, 352, 288}));
}

TEST(MegatronAllGather, RefusesRanksOfUnequalLength) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}}));
  EXPECT_EQ(rule("allgather", uneven.layer),
            "every rank must hold the same number of tokens (variable sequence lengths are rejected)");
}

}  // namespace
}  // namespace moesim::models::testing
