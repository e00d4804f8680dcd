// The steps that torchtitan's dispatchers share (docs/spec.md 2.10): experts, scores, scatter_add, counters.
#include "models/dispatchers/parts/torchtitan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(TorchtitanSteps, UniformCountsAreThoseOfARank) {
  const Example one, three(example_3());
  const LayerSizes skewed(one.layer), balanced(three.layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_FALSE(uniform_on(skewed, r));  // 19 11 | 9 5 | 6 5 | 5 4
    EXPECT_TRUE(uniform_on(balanced, r));
  }
  EXPECT_FALSE(uniform_on_every_rank(skewed));
  EXPECT_TRUE(uniform_on_every_rank(balanced));
  const Example own(Routing::from_choices(4, 2, {{0, 1, 0, 1}, {0, 1, 2, 3}}), 2);
  EXPECT_TRUE(uniform_on_every_rank(LayerSizes(own.layer)));
}

TEST(TorchtitanSteps, CountersCarryTheNamesOfTheOriginals) {
  Example example(example_3());
  example.layer.train = false;
  const Program p =
      build("torchtitan-force-balance:experts=batched:weights_cached=false:scatter_add_in_place=true",
            example.layer);
  std::vector<std::string> names;
  for (const auto& [name, count] : p.counters) names.push_back(name);
  for (const char* name : {"score_after_experts_bf16", "batched_no_grad_experts", "cached_w13_miss",
                           "cached_w2_t_miss", "scatter_add_inplace_no_grad"})
    EXPECT_THAT(names, ::testing::Contains(name));
}

// One product of w13 and one of w2 for all experts; both layouts stay: 3*E_l*H*F*b_w bytes.
TEST(TorchtitanSteps, BatchedExpertsAreTwoLaunchesAndKeepTheirLayouts) {
  Example example(example_3());
  example.layer.train = false;
  const Program hit = build("torchtitan-alltoall:experts=batched", example.layer),
                miss = build("torchtitan-alltoall:experts=batched:weights_cached=false", example.layer);
  EXPECT_EQ(product_launches(hit.forward()), 2);
  EXPECT_EQ(the(hit.forward(), "fc1").n, 2 * 32);
  EXPECT_EQ(hit.persistent_bytes, 3 * 2 * 16 * 32 * 2);
  EXPECT_EQ(miss.persistent_bytes, hit.persistent_bytes);
  EXPECT_FALSE(has(hit.forward(), "w13 and w2_t layouts"));
  EXPECT_EQ(miss.value(the(miss.forward(), "w13 and w2_t layouts").written, 0), 3 * 2 * 16 * 32 * 2);
}

// The fork batches equal counts without gradients, and else runs its loop.
TEST(TorchtitanSteps, TheForkLoopsWhereItMayNotBatch) {
  Example balanced(example_3());
  EXPECT_EQ(product_launches(build("torchtitan-alltoall:experts=fork", balanced.layer).forward()), 3 * 2);
  balanced.layer.train = false;
  EXPECT_EQ(product_launches(build("torchtitan-alltoall:experts=fork", balanced.layer).forward()), 2);
  Example skewed;
  skewed.layer.train = false;
  EXPECT_EQ(product_launches(build("torchtitan-alltoall:experts=fork", skewed.layer).forward()), 3 * 2);
}

// T=5, K=1: experts get 4 4 | 4 4 | 4 0 | 0 0 rows. Rank 2 loops, the others batch.
TEST(TorchtitanSteps, EveryRankOfTheForkDecidesForItself) {
  RoutingSpec debug;
  debug.kind = RoutingSpec::Kind::kRoundRobin;
  Example example(make_routing(debug, 4, 5, 8, 1, 1));
  example.layer.train = false;
  const Program p = build("torchtitan-alltoall:experts=fork", example.layer);
  std::vector<Op> products;
  for (const Op& op : p.forward())
    if (op.kind == OpKind::kGemm) products.push_back(op);
  ASSERT_EQ(products.size(), 4u);  // fc1 and fc2 of the batch, then of the loop
  EXPECT_EQ(products[0].n, 2 * 32);
  EXPECT_EQ(products[2].n, 32);
  EXPECT_EQ(products[0].launches + products[1].launches, 2);
  EXPECT_EQ(products[2].launches + products[3].launches, 3 * 2);
  EXPECT_EQ(numbers(p, products[0].present), (Numbers{1, 1, 0, 1}));
  EXPECT_EQ(numbers(p, products[2].present), (Numbers{0, 0, 1, 0}));
  for (int r = 0; r < 4; ++r) {
    const auto batch = p.expert_rows(products[0].table, r), loop = p.expert_rows(products[2].table, r);
    EXPECT_EQ(std::accumulate(batch.begin(), batch.end(), std::int64_t{0}), r < 2 ? 8 : 0) << r;
    EXPECT_EQ(std::accumulate(loop.begin(), loop.end(), std::int64_t{0}), r == 2 ? 4 : 0) << r;
  }
}

// fp32 eager: rows up to fp32, times the score, back: reads w + 4H + 4H + b_p, writes 4H + 4H + w.
TEST(TorchtitanSteps, ScoresMultiplyInFp32OrTheRowsType) {
  const Example example;
  const Program wide = build("torchtitan-alltoall", example.layer),
                own = build("torchtitan-alltoall:score_fp32=false", example.layer),
                before = build("torchtitan-alltoall:score_before_experts=true", example.layer);
  const Op fp32 = the(wide.forward(), "multiply scores"), bf16 = the(own.forward(), "multiply scores");
  EXPECT_EQ(wide.value(fp32.read, 0), 16 * (32 + 64 + 64 + 4));
  EXPECT_EQ(wide.value(fp32.written, 0), 16 * (64 + 64 + 32));
  EXPECT_EQ(fp32.launches, 3);
  EXPECT_EQ(own.value(bf16.read, 0), 16 * (32 + 4));
  EXPECT_EQ(own.value(bf16.written, 0), 16 * 32);
  EXPECT_EQ(the(before.forward(), "multiply scores").category, Category::permute);
  EXPECT_EQ(fp32.category, Category::unpermute);
}

// Recent versions sort T*K keys; older ones write 2*8*n*H bytes of coordinates and sort n*H keys.
TEST(TorchtitanSteps, DeterministicScatterSortsTokensOrElements) {
  Example example;
  const Program keys = build("torchtitan-alltoall", example.layer),
                elements = build("torchtitan-alltoall:old_scatter_add=true", example.layer);
  EXPECT_EQ(keys.value(the(keys.forward(), "sort token ids").read, 0), 8 * 16 * (8 + 8));
  EXPECT_EQ(elements.value(the(elements.forward(), "expand indices").written, 0), 16 * 2 * 8 * 16);
  EXPECT_EQ(elements.value(the(elements.forward(), "sort elements").read, 0), 16 * 16 * 8 * (8 + 8));
  // Without gradients it may write over its target: a copy of T*w less, in memory too.
  example.layer.train = false;
  const Program out = build("torchtitan-alltoall", example.layer),
                in = build("torchtitan-alltoall:scatter_add_in_place=true", example.layer);
  EXPECT_EQ(out.value(the(out.forward(), "scatter_add").written, 0), 2 * 8 * 32);
  EXPECT_EQ(in.value(the(in.forward(), "scatter_add").written, 0), 8 * 32);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(out.peak_forward_bytes[r], in.peak_forward_bytes[r] + 8 * 32);
}

TEST(TorchtitanSteps, RefusesOptionsWithoutWhatTheyBelongTo) {
  Example example;
  EXPECT_EQ(refusal("torchtitan-alltoall:weights_cached=true"),
            "--dispatcher: dispatcher torchtitan-alltoall: found weights_cached without experts=batched or "
            "experts=fork, which it belongs to");
  EXPECT_EQ(refusal("torchtitan-alltoall:shared_output_is_input=true"),
            "--dispatcher: dispatcher torchtitan-alltoall: found shared_output_is_input without "
            "scatter_add_in_place, whose guard it is");
  EXPECT_EQ(rule("torchtitan-alltoall:scatter_add_in_place=true", example.layer),
            "scatter_add_in_place needs a pass without gradients: autograd forbids writing over the target");
  EXPECT_EQ(rule("torchtitan-alltoall:scatter_add_in_place=auto:shared_output_is_input=true", example.layer),
            "shared_output_is_input needs shared experts: their output is the target of scatter_add");
  example.layer.train = false;
  example.layer.shared_ffn = 32;
  EXPECT_EQ(rule("torchtitan-alltoall:scatter_add_in_place=true:shared_output_is_input=true", example.layer),
            "scatter_add_in_place would write over the layer's input, which shared_experts(x) returns");
}

}  // namespace
}  // namespace moesim::models::testing
