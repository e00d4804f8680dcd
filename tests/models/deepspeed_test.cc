// DeepSpeed MoE (docs/spec.md 2.13): a fixed capacity, and products with one-hot masks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// C = max(ceil(T*K/E), min_capacity): 2 without a minimum, 4 by default; E*C rows go there and back, of which
// (E-E_l)*C leave the rank.
TEST(DeepSpeed, Example1) {
  const Example example;
  const Program p = build("deepspeed:min_capacity=0", example.layer);
  expect_messages(p, p.forward(),
                  {{"tokens", {16 * 32}, {16 * 32}, {12 * 32}, {12 * 32}},
                   {"tokens", {16 * 32}, {16 * 32}, {384}, {384}}});
  EXPECT_EQ(p.computed_rows, Numbers(4, 16));
  EXPECT_EQ(p.dropped_rows, 64 - 49);
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  EXPECT_EQ(messages(p.backward()).size(), 2u);
  const Program least = build("deepspeed", example.layer);
  EXPECT_EQ(numbers(least, messages(least.forward())[0].tx), Numbers(4, 6 * 4 * 32));
  EXPECT_EQ(least.dropped_rows, 3);  // three ranks send 5 rows to expert 0
}

TEST(DeepSpeed, WithoutDroppingTheCapacityIsTheLargestCount) {
  const Example example;
  const Program p = build("deepspeed:drop_tokens=false", example.layer);
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].comm, CommKind::kAllReduce);
  EXPECT_EQ(numbers(p, all[0].in), Numbers(4, 8));
  EXPECT_EQ(numbers(p, all[1].tx), Numbers(4, 6 * 5 * 32));
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_EQ(p.dropped_rows, 0);
}

// [E*C, T] x [T, H] and [T, E*C] x [E*C, H]: 2*T*E*C*H FLOPs each.
TEST(DeepSpeed, MasksAreProducts) {
  const Example example;
  const Program p = build("deepspeed:min_capacity=0", example.layer);
  const Op there = the(p.forward(), "dispatch product"), back = the(p.forward(), "combine product");
  EXPECT_EQ(p.expert_rows(there.table, 0)[0], 16);
  EXPECT_EQ(there.n, 16);
  EXPECT_EQ(there.k, 8);
  EXPECT_EQ(p.expert_rows(back.table, 0)[0], 8);
  EXPECT_EQ(back.k, 16);
  EXPECT_EQ(product_launches(p.forward()), 1 + 2 + 2 + 1);  // both of each local expert between the masks
}

// T*w, the masks of T*E*C elements (a byte, and the weight), E*C rows in and out of the experts.
TEST(DeepSpeed, KeepsTheMasks) {
  const Example example;
  const Program p = build("deepspeed:min_capacity=0", example.layer);
  const std::int64_t mask = 8 * 16;
  EXPECT_EQ(p.saved_bytes, Numbers(4, 8 * 32 + mask * (1 + 4) + 16 * (32 + 64 * 2 + 32 * 2 + 32)));
}

// Two groups of 4 tokens: C = ceil(4*2/8) = 1 each, so [E*C, 4] x [4, H] and [4, E*C] x [E*C, H] twice.
TEST(DeepSpeed, GroupsHaveCapacitiesOfTheirOwn) {
  const Example example;
  const Program p = build("deepspeed:min_capacity=0:group=4", example.layer);
  const Op there = the(p.forward(), "dispatch product"), back = the(p.forward(), "combine product");
  EXPECT_EQ(p.expert_rows(there.table, 0)[0], 2 * 8);
  EXPECT_EQ(there.k, 4);
  EXPECT_EQ(p.expert_rows(back.table, 0)[0], 8);
  EXPECT_EQ(back.k, 8);
  EXPECT_EQ(p.saved_bytes, Numbers(4, 8 * 32 + 8 * 8 * (1 + 4) + 16 * (32 + 64 * 2 + 32 * 2 + 32)));
  EXPECT_EQ(rule("deepspeed:group=3", example.layer),
            "its groups of 3 tokens do not divide the 8 tokens of a rank");
  EXPECT_EQ(refusal("deepspeed:drop_tokens=false:group=4"),
            "--dispatcher: dispatcher deepspeed: found group with drop_tokens=false, expected one of them: a "
            "group has a capacity");
}

TEST(DeepSpeed, RefusesAnUnusedCapacity) {
  EXPECT_EQ(
      refusal("deepspeed:drop_tokens=false:capacity_factor=2"),
      "--dispatcher: dispatcher deepspeed: found capacity_factor with drop_tokens=false, expected one of "
      "them: without dropping the capacity is the largest count");
  const Example split(example_1(), 2, 2);
  EXPECT_EQ(rule("deepspeed", split.layer),
            "it does not split experts over etp where every rank holds its own tokens");
}

// (E-E_l)*C*w over the wire, whatever the routing; nothing is dropped where no count is above C.
RC_GTEST_PROP(DeepSpeed, VolumeFollowsFromTheCapacity, ()) {
  const RandomLayer random = random_layer(false);
  if (random.layer.ep == 1) return;
  const std::int64_t C = *rc::gen::inRange(1, 30);
  const Program p =
      build("deepspeed:capacity_factor=0.000001:min_capacity=" + std::to_string(C), random.layer);
  const std::int64_t away = random.routing.experts() - random.layer.local_experts();
  std::int64_t over = 0;
  for (int r = 0; r < p.ranks(); ++r) {
    RC_ASSERT(p.value(messages(p.forward())[0].tx, r) == away * C * random.layer.hidden * 2);
    for (const std::int64_t n : random.routing.counts(r)) over += std::max<std::int64_t>(0, n - C);
  }
  RC_ASSERT(p.dropped_rows == over);
}

}  // namespace
}  // namespace moesim::models::testing
