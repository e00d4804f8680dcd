// Megatron Flex with NCCL EP (docs/spec.md 2.4): HybridEP's program, K indices and weights beside every row.
#include <gtest/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(NcclEp, Example1) {
  const Example example;
  const Program p = build("nccl-ep", example.layer);
  const Program hybrid = build("flex-hybridep", example.layer);
  const Op map = named(messages(p.forward()), "routing map").front(),
           tokens = named(p.forward(), "tokens").front(), beside = the(p.forward(), "indices and weights");
  // Sizes are counted in chunks of 64 tokens: 8 of them are one.
  EXPECT_EQ(numbers(p, map.in), Numbers(4, 64 * 8));
  EXPECT_EQ(numbers(p, tokens.tx), numbers(hybrid, named(hybrid.forward(), "tokens").front().tx));
  EXPECT_EQ(tokens.library, ExchangeLibrary::kNcclEp);
  EXPECT_EQ(tokens.sms, 16);
  EXPECT_EQ(beside.row_bytes, 2 * (8 + 4));  // K = 2
  EXPECT_TRUE(beside.fused);
  EXPECT_EQ(p.computed_rows, hybrid.computed_rows);
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  // Buffers for R chunks of 64 rows of w = 32 bytes and of what is beside them.
  EXPECT_EQ(p.persistent_bytes, 4 * 64 * (32 + 2 * 12));
}

TEST(NcclEp, StaticSizesNeedNoHost) {
  const Example example(example_2());
  const Program p = build("nccl-ep:mode=static:rank_capacity_factor=2", example.layer);
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  EXPECT_EQ(p.dropped_rows, 32);  // T*K*2 of the 64 that arrive are kept
}

TEST(NcclEp, RefusesWhatOnlyHybridEpHas) {
  EXPECT_NE(refusal("nccl-ep:mode=pad").find("dynamic, static"), std::string::npos)
      << refusal("nccl-ep:mode=pad");
  EXPECT_NE(refusal("nccl-ep:capacity_factor=2").find("capacity_factor"), std::string::npos);
}

}  // namespace
}  // namespace moesim::models::testing
