// Megatron AlltoAll, sequence form (docs/spec.md 2.2.3): rows travel with H/TP columns, probabilities stay.
#include <gtest/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(MegatronAllToAllLegacy, Example1IsTheRecordedSequence) {
  const Example example;
  const Program p = build("alltoall-legacy", example.layer);
  const std::vector<Op> forward = messages(p.forward()), backward = messages(p.backward());
  ASSERT_EQ(forward.size(), 3u);
  EXPECT_EQ(forward[0].comm, CommKind::kAllGather);
  EXPECT_EQ(numbers(p, forward[0].in), Numbers(4, 64));
  EXPECT_EQ(numbers(p, forward[1].in), Numbers(4, 512));
  EXPECT_EQ(numbers(p, forward[2].in), (Numbers{960, 448, 352, 288}));
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(numbers(p, backward[0].in), Numbers(4, 512));
  EXPECT_EQ(numbers(p, backward[1].in), (Numbers{960, 448, 352, 288}));
  EXPECT_EQ(p.host_syncs(p.forward()), 2);  // input splits, output splits
}

// Example 4 in this form: both ranks of a TP group hold the 2*T*K = 32 rows of 16 bytes of the group; 24 and
// 20 of them go to EP rank 0, 8 and 12 to EP rank 1.
TEST(MegatronAllToAllLegacy, Example4TravelsWithHalfTheColumns) {
  const Example example(example_1(), 2, 2);
  const Program p = build("alltoall-legacy", example.layer);
  expect_messages(p, p.forward(),
                  {{"counts", {64}, {128}, {64}, {64}},
                   {"tokens to columns", {256}, {256}, {128}, {128}},
                   {"tokens",
                    {512},
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16},
                    {8 * 16, 8 * 16, 20 * 16, 20 * 16},
                    {20 * 16, 20 * 16, 8 * 16, 8 * 16}},
                   {"columns",
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16},
                    {44 * 32, 44 * 32, 20 * 32, 20 * 32},
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16},
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16}},
                   {"columns",
                    {44 * 32, 44 * 32, 20 * 32, 20 * 32},
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16},
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16},
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16}},
                   {"tokens",
                    {44 * 16, 44 * 16, 20 * 16, 20 * 16},
                    {512},
                    {20 * 16, 20 * 16, 8 * 16, 8 * 16},
                    {8 * 16, 8 * 16, 20 * 16, 20 * 16}},
                   {"columns to tokens", {256}, {256}, {128}, {128}}});
  EXPECT_EQ(p.computed_rows, (Numbers{44, 44, 20, 20}));
}

// T*w + T*K*(8+b_p) + R_d*(w + F_up*b + F*b), and T*K*w of returned rows for the gradient of probabilities.
TEST(MegatronAllToAllLegacy, KeepsTheReturnedRows) {
  const Example example;
  const Program p = build("alltoall-legacy", example.layer);
  const Numbers R_d{30, 14, 11, 9};
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(p.saved_bytes[r], 8 * 32 + 16 * (8 + 4) + R_d[r] * (32 + 64 * 2 + 32 * 2) + 16 * 32);
}

TEST(MegatronAllToAllLegacy, RefusesWhatItCannotSplit) {
  Example example(example_1(), 2, 2);
  example.layer.hidden = 15;
  EXPECT_EQ(rule("alltoall-legacy", example.layer),
            "the hidden size must be a multiple of etp: rows travel with H/TP columns");
  const Routing uneven = Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}});
  EXPECT_EQ(
      rule("alltoall-legacy", example_layer(uneven, 2, 2)),
      "with etp > 1 every rank must hold the same number of tokens: the exchange over TP is an equal one");
  EXPECT_EQ(rule("alltoall-legacy", example_layer(uneven)), "");
  EXPECT_EQ(refusal("alltoall-legacy:pad"),
            "--dispatcher: dispatcher alltoall-legacy: found option 'pad', expected none");
}

}  // namespace
}  // namespace moesim::models::testing
