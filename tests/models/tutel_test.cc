// Tutel (docs/spec.md 2.13): capacities, pipelining with the experts, and the two stages of 2DH.
#include <gtest/gtest.h>

#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(Tutel, Example1) {
  const Example example;
  const Program p = build("tutel", example.layer);  // C = 2
  expect_messages(
      p, p.forward(),
      {{"tokens", {16 * 32}, {16 * 32}, {384}, {384}}, {"tokens", {16 * 32}, {16 * 32}, {384}, {384}}});
  EXPECT_EQ(p.computed_rows, Numbers(4, 16));
  EXPECT_EQ(p.dropped_rows, 64 - 49);
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
}

TEST(Tutel, ACapacityOfZeroIsTheLargestCountOfTheGroup) {
  const Example example;
  const Program p = build("tutel:capacity_factor=0", example.layer);
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].comm, CommKind::kAllReduce);
  EXPECT_EQ(numbers(p, all[1].tx), Numbers(4, 6 * 5 * 32));
  EXPECT_EQ(p.dropped_rows, 0);
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
}

// Chunks of C/2 rows: twice the exchanges of half the bytes; the products of a chunk have half the rows.
TEST(Tutel, PipeliningCutsTheCapacity) {
  const Example example;
  const Program whole = build("tutel", example.layer), halves = build("tutel:pipeline=2", example.layer);
  const std::vector<Op> all = messages(halves.forward());
  ASSERT_EQ(all.size(), 4u);
  for (const Op& op : all) EXPECT_EQ(numbers(halves, op.tx), Numbers(4, 384 / 2));
  EXPECT_EQ(total_tx(halves, halves.forward()), total_tx(whole, whole.forward()));
  EXPECT_EQ(total_tx(halves, halves.backward()), total_tx(whole, whole.backward()));
  EXPECT_EQ(product_launches(halves.forward()), 2 * product_launches(whole.forward()));
  const std::vector<Op> chunks = named(halves.forward(), "fc1");
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(halves.expert_rows(chunks[0].table, 0)[0], 4);
  // The first chunk's products wait for its own rows only, while the second chunk's travel.
  std::vector<std::int32_t> exchanges;
  for (std::size_t i = 0; i < halves.forward().size(); ++i)
    if (halves.forward()[i].kind == OpKind::kCollective) exchanges.push_back(static_cast<std::int32_t>(i));
  const auto waits_for = [](const Op& op, std::int32_t other) {
    return op.after[0] == other || op.after[1] == other;
  };
  EXPECT_TRUE(waits_for(chunks[0], exchanges[0]));
  EXPECT_FALSE(waits_for(chunks[0], exchanges[1]));
  EXPECT_TRUE(waits_for(chunks[1], exchanges[1]));
}

// C is rounded up to the degree: 2 rows become 8 with eight chunks.
TEST(Tutel, TheCapacityIsWholeChunks) {
  const Example example;
  const Program p = build("tutel:pipeline=8", example.layer);
  EXPECT_EQ(p.computed_rows, Numbers(4, 8 * 8));
  EXPECT_EQ(p.dropped_rows, 0);  // no count is above 8
}

// Two nodes of two: 4 rows per pair are first gathered by destination inside the node, then sent between the
// nodes in messages of two ranks' rows. Half of the 16 rows leave the rank in each stage.
TEST(Tutel, TwoStagesMoveAggregatedMessages) {
  Example example;
  example.layer.ranks_per_node = 2;
  const Program p = build("tutel:two_dh=true", example.layer);
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 4u);
  const auto inside = p.matrix(all[0].matrix, 0), between = p.matrix(all[1].matrix, 0);
  const Numbers first(inside.begin(), inside.begin() + 4), second(between.begin(), between.begin() + 4);
  EXPECT_EQ(first, (Numbers{8, 8, 0, 0}));
  EXPECT_EQ(second, (Numbers{8, 0, 8, 0}));
  for (const Op& op : all) EXPECT_EQ(numbers(p, op.tx), Numbers(4, 8 * 32));
  EXPECT_TRUE(check_bytes(p).empty());
  EXPECT_EQ(p.computed_rows, build("tutel", example.layer).computed_rows);
  // Two copies of E*C*w bytes each way.
  EXPECT_EQ(numbers(p, named(p.forward(), "align for the nodes")[0].read), Numbers(4, 16 * 32));
  EXPECT_EQ(numbers(p, named(p.forward(), "align for the ranks")[0].read), Numbers(4, 16 * 32));
}

TEST(Tutel, RefusesDegreesAndGroups) {
  EXPECT_EQ(refusal("tutel:pipeline=3"),
            "--dispatcher: dispatcher tutel: found pipeline=3, expected 1, 2, 4 or 8");
  Example example;
  EXPECT_EQ(rule("tutel:two_dh=true", example.layer),
            "two_dh needs a group of several whole nodes: 4 ranks on nodes of 8");
  example.layer.straddles = true;
  EXPECT_EQ(rule("tutel:two_dh=true", example.layer),
            "two_dh needs a group of several whole nodes: 4 ranks straddle them unevenly");
}

}  // namespace
}  // namespace moesim::models::testing
