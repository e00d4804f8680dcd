// MegaBlocks dMoE with grouped products (docs/spec.md 2.12): dropless and unpadded.
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(MegablocksDmoeGrouped, Example1) {
  const Example example;
  const Program p = build("megablocks-dmoe-grouped", example.layer);
  const Numbers received{960, 448, 352, 288}, away{256, 384, 384, 448}, got{704, 320, 224, 224};
  expect_messages(p, p.forward(),
                  {{"counts", {32}, {32}, {24}, {24}},  // E int32
                   {"tokens", {512}, received, away, got},
                   {"tokens", received, {512}, got, away}});
  expect_messages(
      p, p.backward(),
      {{"output gradient", {512}, received, away, got}, {"hidden gradient", received, {512}, got, away}});
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.host_syncs(p.forward()), 2);
  EXPECT_EQ(product_launches(p.forward()), 3);
}

// T*w + T*E*4 + T*K*12 + R_d*(w + 4*F*b) + T*K*w.
TEST(MegablocksDmoeGrouped, KeepsWhatTheFormulaSays) {
  const Example example;
  const Program p = build("megablocks-dmoe-grouped", example.layer);
  const Numbers R_d{30, 14, 11, 9};
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(p.saved_bytes[r], 8 * 32 + 8 * 8 * 4 + 16 * 12 + R_d[r] * (32 + 4 * 32 * 2) + 16 * 32);
}

// Alone the counts are not on the host yet: one read more than no exchange at all.
TEST(MegablocksDmoeGrouped, ReadsItsCountsOnlyWithoutAnExchange) {
  const Example example(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  const Program p = build("megablocks-dmoe-grouped", example.layer);
  EXPECT_TRUE(messages(p.forward()).empty());
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_TRUE(has(p.forward(), "counts for the products"));
}

}  // namespace
}  // namespace moesim::models::testing
