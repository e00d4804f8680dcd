// MegaBlocks dMoE with block-sparse products (docs/spec.md 2.12): experts padded to whole blocks.
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(MegablocksDmoeSparse, PadsEveryExpertToWholeBlocks) {
  Example example;
  example.layer.expert_ffn = 128;
  const Program p = build("megablocks-dmoe-sparse", example.layer);
  EXPECT_EQ(p.computed_rows, Numbers(4, 2 * 128));
  EXPECT_EQ(p.dispatched_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.dropped_rows, 0);
  EXPECT_EQ(p.host_syncs(p.forward()), 3);  // the counts of both sides, and the padded total
  for (const Op& op : p.forward())
    if (op.kind == OpKind::kGemm) {
      EXPECT_EQ(op.backend, GemmBackend::kBlockSparse);
    }
}

// N = [19 11 | 9 5 | 6 5 | 5 4] in blocks of 4 rows and columns; F = 32 is 8 blocks wide.
TEST(MegablocksDmoeSparse, TopologyHasAnEntryPerBlock) {
  const Example example;
  const Program p = build("megablocks-dmoe-sparse:block=4", example.layer);
  EXPECT_EQ(p.computed_rows, (Numbers{20 + 12, 12 + 8, 8 + 8, 8 + 4}));
  EXPECT_EQ(numbers(p, the(p.forward(), "block topology").read),
            (Numbers{8 * 8 * 12, 5 * 8 * 12, 4 * 8 * 12, 3 * 8 * 12}));
}

TEST(MegablocksDmoeSparse, TheInnerSizeIsWholeBlocks) {
  Example example;
  EXPECT_EQ(rule("megablocks-dmoe-sparse", example.layer),
            "the experts' inner size on a rank must be a multiple of the block of 128, here 32");
  // Two ranks share an expert: each has half of the inner size.
  const Example shared(make_routing(RoutingSpec(), 4, 8, 2, 1, 1));
  EXPECT_EQ(rule("megablocks-dmoe-sparse:block=32", shared.layer),
            "the experts' inner size on a rank must be a multiple of the block of 32, here 16");
  EXPECT_EQ(rule("megablocks-dmoe-sparse:block=16", shared.layer), "");
}

}  // namespace
}  // namespace moesim::models::testing
