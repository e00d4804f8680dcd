// torchtitan fork, router in debug mode (docs/spec.md 2.8): splits are computed, not asked for.
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// T=16384, K=3, E=36, EP=12, rank 4 (docs/spec.md 2.8).
TEST(TorchtitanForceBalance, TestVector) {
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kRoundRobin;
  const Example example(make_routing(spec, 12, 16384, 36, 3, 1), 12);
  const Program p = build("torchtitan-force-balance:pad=false", example.layer);
  const Op exchange = messages(p.forward())[0];
  ASSERT_EQ(exchange.comm, CommKind::kAllToAllV);
  const auto rows = p.matrix(exchange.matrix, 0);
  for (int d = 0; d < 12; ++d) {
    EXPECT_EQ(rows[4 * 12 + d], d < 4 ? 4098u : 4095u);
    EXPECT_EQ(rows[d * 12 + 4], 4095u);
  }
  for (const std::int64_t count : p.expert_rows(0, 4)) EXPECT_EQ(count, 12 * 1365);
  for (const std::int64_t count : p.expert_rows(0, 0)) EXPECT_EQ(count, 12 * 1366);
  // Chunks are usually padded to the largest one, 4098 rows for each of 12 ranks; rows of 16 bf16 elements.
  const Program padded = build("torchtitan-force-balance", example.layer);
  for (const Op& op : messages(padded.forward())) {
    EXPECT_EQ(op.comm, CommKind::kAllToAll);
    EXPECT_EQ(numbers(padded, op.in), Numbers(12, 12 * 4098 * 32));
    EXPECT_EQ(numbers(padded, op.tx), Numbers(12, 11 * 4098 * 32));
  }
  EXPECT_EQ(padded.host_syncs(padded.forward()), 0);
}

TEST(TorchtitanForceBalance, Example3IsAnEqualExchangeWithoutAnyQuestion) {
  const Example example(example_3());
  // K = local experts = 2: the direct input is legal.
  const Program direct = build("torchtitan-force-balance:direct=true", example.layer);
  EXPECT_EQ(direct.host_syncs(direct.forward()), 0);
  expect_messages(
      direct, direct.forward(),
      {{"tokens", {16 * 32}, {16 * 32}, {384}, {384}}, {"tokens", {16 * 32}, {16 * 32}, {384}, {384}}});
  EXPECT_EQ(messages(direct.forward())[0].comm, CommKind::kAllToAll);
  // Strided copies instead of a gather with indices.
  EXPECT_EQ(numbers(direct, the(direct.forward(), "strided chunks").read), Numbers(4, 16 * 32));
  EXPECT_FALSE(has(direct.forward(), "gather rows"));
  EXPECT_TRUE(has(build("torchtitan-force-balance", example.layer).forward(), "gather rows"));
}

// T=5, K=2: ten slots over eight experts, q = 1 and one more for the first two: S[r] = [4 2 2 2].
TEST(TorchtitanForceBalance, RemaindersGoToTheFirstExperts) {
  const Example example(make_routing(RoutingSpec(), 4, 5, 8, 2, 1));
  const Program uneven = build("torchtitan-force-balance:pad=false", example.layer),
                padded = build("torchtitan-force-balance", example.layer);
  const Op there = messages(uneven.forward())[0];
  EXPECT_EQ(there.comm, CommKind::kAllToAllV);
  EXPECT_EQ(numbers(uneven, there.in), Numbers(4, 10 * 32));
  EXPECT_EQ(numbers(uneven, there.tx), (Numbers{6 * 32, 8 * 32, 8 * 32, 8 * 32}));
  EXPECT_EQ(uneven.computed_rows, (Numbers{16, 8, 8, 8}));
  EXPECT_EQ(messages(padded.forward())[0].comm, CommKind::kAllToAll);
  EXPECT_EQ(numbers(padded, messages(padded.forward())[0].in), Numbers(4, 4 * 4 * 32));  // EP*m*w
  EXPECT_EQ(numbers(padded, messages(padded.forward())[0].tx), Numbers(4, 3 * 4 * 32));
  EXPECT_EQ(padded.computed_rows, uneven.computed_rows);
}

// Whatever the asked routing, the router's debug mode replaces it.
TEST(TorchtitanForceBalance, ForcesItsOwnRouting) {
  const Example skewed(example_2()), balanced(example_3());
  const Program a = build("torchtitan-force-balance", skewed.layer),
                b = build("torchtitan-force-balance", balanced.layer);
  EXPECT_TRUE(a.forces_routing);
  EXPECT_EQ(a.computed_rows, Numbers(4, 16));
  EXPECT_EQ(total_tx(a, a.forward()), total_tx(b, b.forward()));
}

// T=5, K=1: n = [1 1 1 1 1 0 0 0], so that the experts of rank 2 get 4 and 0 rows; the others view theirs.
TEST(TorchtitanForceBalance, RanksWithEqualCountsTakeAView) {
  const Example example(make_routing(RoutingSpec(), 4, 5, 8, 1, 1));
  const Program p = build("torchtitan-force-balance", example.layer);
  EXPECT_EQ(p.computed_rows, (Numbers{8, 8, 4, 0}));
  EXPECT_EQ(numbers(p, the(p.forward(), "transpose copy").written), (Numbers{8 * 32, 8 * 32, 0, 0}));
  EXPECT_EQ(numbers(p, the(p.forward(), "gather expert-major").written), (Numbers{0, 0, 4 * 32, 0}));
}

// torch.compile takes no fast path: counts are exchanged and read as on the normal path.
TEST(TorchtitanForceBalance, CompiledIsTheNormalPathOnItsRouting) {
  const Example example(example_2());
  const Program p = build("torchtitan-force-balance:compiled=true", example.layer);
  EXPECT_TRUE(p.forces_routing);
  EXPECT_EQ(messages(p.forward()).size(), 3u);
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_EQ(p.computed_rows, Numbers(4, 16));
}

TEST(TorchtitanForceBalance, RefusesWhereItsFastPathIsNot) {
  Example example;
  const Example top1(make_routing(RoutingSpec(), 4, 8, 8, 1, 1)),
      alone(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  EXPECT_EQ(rule("torchtitan-force-balance", alone.layer), "the fast path needs ep > 1");
  EXPECT_EQ(rule("torchtitan-force-balance:direct=true", top1.layer),
            "direct needs K = local experts (E = K*EP), here K = 1 and 2 local experts");
  EXPECT_EQ(rule("torchtitan-force-balance:direct=true:score_before_experts=true", example.layer),
            "direct cannot be used with score_before_experts: rows are not sorted");
  EXPECT_EQ(rule("torchtitan-force-balance:direct=true", example.layer), "");
  EXPECT_EQ(rule("torchtitan-force-balance:counts=router", example.layer),
            "counts=router has no effect here: counts follow from T, K and E");
  example.layer.tp = 2;
  EXPECT_EQ(rule("torchtitan-force-balance", example.layer),
            "the fast path needs sp 1: rows are not split over a sequence-parallel group");
  EXPECT_EQ(
      refusal("torchtitan-force-balance:pad=false:pad_with=cat"),
      "--dispatcher: dispatcher torchtitan-force-balance: found pad_with with pad=false, expected pad=true: "
      "nothing is padded");
  EXPECT_EQ(
      refusal("torchtitan-force-balance:compiled:pad"),
      "--dispatcher: dispatcher torchtitan-force-balance: found compiled with pad, expected one of them: "
      "torch.compile takes no fast path");
  const Example odd(make_routing(RoutingSpec(), 4, 7, 8, 2, 1));  // 14 slots: S[r] = [4 4 4 2]
  EXPECT_EQ(rule("torchtitan-force-balance:direct=true", odd.layer), "");
  EXPECT_EQ(rule("torchtitan-force-balance:direct=true:pad=false", odd.layer),
            "direct feeds an equal exchange, which pad=false does without where splits differ");
}

}  // namespace
}  // namespace moesim::models::testing
