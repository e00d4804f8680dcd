// torchtitan fork as a whole (docs/spec.md 2.7, 2.8, 2.10): which path it takes, and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

std::int64_t counter(const Program& p, const std::string& name) {
  for (const auto& [known, count] : p.counters)
    if (known == name) return count;
  return 0;
}

// The fork's own sizes: T=16384, K=3, E=36, EP=12; K = local experts, so that chunks come by strides.
TEST(TorchtitanFork, ForcedBalanceTakesEveryFastPath) {
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kRoundRobin;
  Example example(make_routing(spec, 12, 16384, 36, 3, 1), 12);
  example.layer.train = false;
  const Program p = build("torchtitan-fork:force_load_balance", example.layer);
  EXPECT_EQ(numbers(p, messages(p.forward())[0].in), Numbers(12, 12 * 4098 * 32));
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  for (const char* name :
       {"direct_equal_split_input", "equal_a2a_padding_dispatch", "equal_a2a_padding_combine",
        "score_after_experts_bf16", "scatter_add_inplace_no_grad", "batched_no_grad_experts"})
    EXPECT_EQ(counter(p, name), 1) << name;
  EXPECT_EQ(counter(p, "uniform_local_count"),
            1366);  // 49152 slots over 36 experts, 12 of which get one more
  EXPECT_EQ(product_launches(p.forward()), 2);
}

TEST(TorchtitanFork, TheNormalPathPadsNothingUnlessAPolicySaysSo) {
  const Example example;
  const Program normal = build("torchtitan-fork", example.layer),
                padded = build("torchtitan-fork:policy=force", example.layer);
  EXPECT_EQ(messages(normal.forward())[1].comm, CommKind::kAllToAllV);
  EXPECT_FALSE(has(normal.forward(), "count rows per expert"));  // the router's counts serve
  EXPECT_EQ(counter(normal, "scatter_add_out_of_place_autograd_or_alias"), 1);
  EXPECT_EQ(product_launches(normal.forward()), 3 * 2);  // with gradients: the loop
  EXPECT_EQ(counter(padded, "equal_a2a_padding_dispatch"), 1);
}

// The local dispatcher with ep 1; after a sequence-parallel split the normal path, with new counts.
TEST(TorchtitanFork, FallsBackWhereItsFastPathIsNot) {
  const Example alone(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  for (const char* name : {"torchtitan-fork", "torchtitan-fork:force_load_balance"})
    EXPECT_TRUE(messages(build(name, alone.layer).forward()).empty()) << name;
  Example split(example_3());
  split.layer.tp = 2;
  const Program p = build("torchtitan-fork:force_load_balance", split.layer);
  EXPECT_EQ(p.host_syncs(p.forward()), 2);  // the splits, and the loop's counts
  EXPECT_TRUE(has(p.forward(), "count rows per expert"));
  EXPECT_TRUE(p.forces_routing);
}

TEST(TorchtitanFork, RefusesOptionsOfTheOtherPath) {
  EXPECT_EQ(refusal("torchtitan-fork:pad=true"),
            "--dispatcher: dispatcher torchtitan-fork: found pad without force_load_balance, whose path it "
            "belongs to");
  EXPECT_EQ(refusal("torchtitan-fork:force_load_balance:policy=force"),
            "--dispatcher: dispatcher torchtitan-fork: found policy with force_load_balance, expected it "
            "without: it is of the normal path");
}

}  // namespace
}  // namespace moesim::models::testing
