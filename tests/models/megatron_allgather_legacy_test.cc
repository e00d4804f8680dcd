// Megatron AllGather, index form (docs/spec.md 2.1.2): the one that scaling mode records.
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(MegatronAllGatherLegacy, Example1) {
  const Example example;
  const Program p = build("allgather-legacy", example.layer);
  expect_messages(p, p.forward(),
                  {{"hidden states", {256}, {1024}, {768}, {768}},
                   {"indices", {128}, {512}, {384}, {384}},
                   {"probabilities", {64}, {256}, {192}, {192}},
                   {"output", {1024}, {256}, {768}, {768}}});
  // (R-1)*T*(2w + K*(8+b_p)), the closed form of docs/spec.md 2.14: 2112.
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 3 * 8 * (2 * 32 + 2 * (8 + 4))));
  EXPECT_EQ(p.host_syncs(p.forward()), 4);
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
}

// One expert per token: its probability is multiplied after the reduce-scatter and is not gathered.
TEST(MegatronAllGatherLegacy, OneExpertPerTokenNeedsNoProbabilities) {
  const Example example(make_routing(RoutingSpec(), 4, 8, 8, 1, 1));
  const Program p = build("allgather-legacy", example.layer);
  expect_messages(p, p.forward(),
                  {{"hidden states", {256}, {1024}, {768}, {768}},
                   {"indices", {64}, {256}, {192}, {192}},
                   {"output", {1024}, {256}, {768}, {768}}});
  EXPECT_EQ(p.host_syncs(p.forward()), 3);
  EXPECT_EQ(messages(p.backward()).size(), 2u);  // neither is a gradient of them reduced
  EXPECT_FALSE(has(p.backward(), "probability gradient"));
}

TEST(MegatronAllGatherLegacy, OneBufferForAllLayersOrOneEach) {
  const Example example;
  const Program one = build("allgather-legacy", example.layer),
                each = build("allgather-legacy:global_buffer=false", example.layer);
  EXPECT_EQ(one.persistent_bytes, 4 * 8 * 32);
  EXPECT_EQ(each.persistent_bytes, 0);
  EXPECT_EQ(one.saved_bytes, each.saved_bytes);
}

TEST(MegatronAllGatherLegacy, IndicesOfElementsOrOfRows) {
  const Example example;
  const Program elements = build("allgather-legacy", example.layer),
                rows = build("allgather-legacy:row_kernels=true", example.layer);
  for (const char* gather : {"global to local rows", "rows by expert"}) {
    EXPECT_EQ(elements.value(the(elements.forward(), gather).read, 0), 30 * (32 + 8 * 16));
    EXPECT_EQ(rows.value(the(rows.forward(), gather).read, 0), 30 * (32 + 8));
  }
}

TEST(MegatronAllGatherLegacy, BiasTravelsAsTheRowsDo) {
  const Example example;
  const Program with = build("allgather-legacy:expert_bias=true", example.layer),
                without = build("allgather-legacy", example.layer);
  const Op bias = the(with.forward(), "expert bias"), back = the(with.backward(), "expert bias gradient");
  EXPECT_EQ(bias.comm, CommKind::kReduceScatter);
  EXPECT_EQ(numbers(with, bias.tx), Numbers(4, 768));
  EXPECT_EQ(back.comm, CommKind::kAllGather);
  EXPECT_EQ(messages(with.forward()).size(), messages(without.forward()).size() + 1);
  EXPECT_EQ(messages(with.backward()).size(), messages(without.backward()).size() + 1);
}

TEST(MegatronAllGatherLegacy, RefusesRanksOfUnequalLength) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}}));
  EXPECT_EQ(rule("allgather-legacy", uneven.layer),
            "every rank must hold the same number of tokens (variable sequence lengths are rejected)");
}

}  // namespace
}  // namespace moesim::models::testing
