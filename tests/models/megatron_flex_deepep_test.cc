// Megatron Flex with DeepEP (docs/spec.md 2.3): one copy of a token per destination rank.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

// Rows are those of D = [7 4 2 2; 6 3 1 2; 4 3 4 3; 6 3 3 2]; a row travels with K ids and weights of 12
// bytes.
TEST(FlexDeepEp, Example1) {
  const Example example;
  const Program p = build("flex-deepep", example.layer);
  const Numbers in{15, 12, 14, 14}, out{23, 13, 10, 9}, tx{8, 9, 10, 12}, rx{16, 10, 6, 7};
  const auto times = [](Numbers n, std::int64_t bytes) {
    for (std::int64_t& each : n) each *= bytes;
    return n;
  };
  expect_messages(p, p.forward(),
                  {{"notify", {4 * 3 * 4}, {4 * 3 * 4}, {3 * 3 * 4}, {3 * 3 * 4}},  // R*(1+E_l) counts
                   {"tokens", times(in, 32), times(out, 32), times(tx, 32), times(rx, 32)},
                   {"indices and weights", times(in, 24), times(out, 24), times(tx, 24), times(rx, 24)},
                   {"tokens", times(out, 32), times(in, 32), times(rx, 32), times(tx, 32)}});
  expect_messages(p, p.backward(),
                  {{"output gradient", times(in, 32), times(out, 32), times(tx, 32), times(rx, 32)},
                   {"hidden gradient", times(out, 32), times(in, 32), times(rx, 32), times(tx, 32)},
                   {"weight gradients", times(out, 8), times(in, 8), times(rx, 8), times(tx, 8)}});
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_EQ(p.host_syncs(p.backward()), 0);  // the handle is cached
  for (const Op& op : messages(p.forward()))
    if (op.name == "tokens") {
      EXPECT_EQ(op.library, ExchangeLibrary::kDeepEp);
      EXPECT_TRUE(op.one_kernel);
      EXPECT_EQ(op.sms, 20);
    }
  EXPECT_TRUE(the(p.forward(), "indices and weights").fused);
}

// Equal rows over another library; only its kernels' prices, SMs and host differ.
TEST(FlexDeepEp, TransportsAndVersionsAreLibraries) {
  const Example example;
  const auto tokens = [&](const std::string& dispatcher) {
    const Program p = build(dispatcher, example.layer);
    return named(p.forward(), "tokens").front();
  };
  EXPECT_EQ(tokens("flex-deepep:transport=nvshmem").library, ExchangeLibrary::kDeepEp);
  EXPECT_EQ(tokens("flex-deepep:transport=uccl").library, ExchangeLibrary::kUccl);
  EXPECT_EQ(tokens("flex-deepep:transport=mori").library, ExchangeLibrary::kMori);
  EXPECT_EQ(tokens("flex-deepep:v2").library, ExchangeLibrary::kDeepEpV2);
  EXPECT_EQ(tokens("flex-deepep:v2").sms, 12);
  EXPECT_EQ(tokens("flex-deepep:v2:sms=24").sms, 24);
  EXPECT_EQ(
      refusal("flex-deepep:v2:transport=uccl"),
      "--dispatcher: dispatcher flex-deepep: found transport beside v2, expected one of them: DeepEP V2 "
      "goes over NCCL");
  EXPECT_NE(refusal("flex-deepep:transport=ucx").find("nvshmem, uccl, mori"), std::string::npos);
}

TEST(FlexDeepEp, Example2SendsATokenOnce) {
  const Example example(example_2());
  const Program p = build("flex-deepep", example.layer);
  const Op tokens = named(p.forward(), "tokens").front();
  EXPECT_EQ(numbers(p, tokens.tx), (Numbers{0, 256, 256, 256}));
  EXPECT_EQ(numbers(p, tokens.rx), (Numbers{768, 0, 0, 0}));
}

TEST(FlexDeepEp, Example3HasBothExpertsOfATokenOnOneRank) {
  const Example example(example_3());
  const Program p = build("flex-deepep", example.layer);
  EXPECT_EQ(numbers(p, named(p.forward(), "tokens").front().tx), Numbers(4, 192));
}

TEST(FlexDeepEp, Example4MergesTheExpertTensorParallelSums) {
  const Example example(example_1(), 2, 2);
  const Program p = build("flex-deepep", example.layer);
  EXPECT_EQ(p.computed_rows, (Numbers{44, 44, 20, 20}));
  const Op tokens = named(p.forward(), "tokens").front();
  EXPECT_EQ(numbers(p, tokens.tx), (Numbers{512, 416, 544, 576}));
  EXPECT_EQ(numbers(p, tokens.rx), (Numbers{640, 672, 352, 384}));
  EXPECT_EQ(numbers(p, tokens.out), (Numbers{28 * 32, 28 * 32, 16 * 32, 16 * 32}));
  for (const Op& op : messages(p.forward())) EXPECT_NE(op.comm, CommKind::kReduceScatterV);
}

TEST(FlexDeepEp, DispatchInFp8CarriesAScaleForEvery128Columns) {
  Example example;
  example.layer.hidden = 160;
  const Program wide = build("flex-deepep", example.layer),
                narrow = build("flex-deepep:fp8_dispatch=true", example.layer);
  const Op dispatch = named(narrow.forward(), "tokens").front();
  EXPECT_EQ(dispatch.dtype, DType::kFp8);
  EXPECT_EQ(dispatch.row_bytes, 160 + 2 * 4);
  EXPECT_EQ(numbers(narrow, dispatch.tx), (Numbers{8 * 168, 9 * 168, 10 * 168, 12 * 168}));
  EXPECT_EQ(named(narrow.forward(), "tokens").back().row_bytes, 320);  // combine stays in bf16
  EXPECT_EQ(narrow.saved_bytes, wide.saved_bytes);
}

TEST(FlexDeepEp, OptionsOfRowsAndWaiting) {
  const Example example;
  const Program worst = build("flex-deepep:worst_case_rows=true", example.layer);
  EXPECT_EQ(worst.host_syncs(worst.forward()), 0);
  EXPECT_EQ(build("flex-deepep:pad_rows=16", example.layer).computed_rows, (Numbers{48, 32, 32, 32}));
  const Program few = build("flex-deepep:sms=8", example.layer);
  EXPECT_EQ(named(few.forward(), "tokens").front().sms, 8);
}

TEST(FlexDeepEp, RefusesOneRankAndGroupsThatBreakNodes) {
  const Example alone(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  EXPECT_EQ(rule("flex-deepep", alone.layer),
            "it needs more than one rank: DeepEP exchanges rows between ranks");
  Example example;
  example.layer.ranks_per_node = 3;
  EXPECT_EQ(
      rule("flex-deepep", example.layer),
      "a dispatch group of 4 ranks on nodes of 3 must fill whole nodes: rows are handed on inside a node "
      "by the GPU with the same local index");
  EXPECT_EQ(refusal("flex-deepep:sms=1"),
            "--dispatcher: dispatcher flex-deepep: found sms='1', expected an integer from 2 to 256");
}

// Counts alone do not say which rows are copies of one token.
TEST(FlexDeepEp, SaysWhereCopiesAreExpected) {
  const Routing known = example_1();
  Numbers tokens, counts;
  for (int r = 0; r < 4; ++r) {
    tokens.push_back(8);
    counts.insert(counts.end(), known.counts(r).begin(), known.counts(r).end());
  }
  const Example bare(Routing::from_counts(4, 8, 2, tokens, counts));
  EXPECT_EQ(build("flex-deepep", bare.layer).warnings,
            std::vector<std::string>{
                "copies per token are their expectation: the routing has counts, not choices"});
  EXPECT_TRUE(build("flex-deepep", Example().layer).warnings.empty());
}

// Whatever the routing: no more rows than AlltoAll moves, nor than AllGather does (identity 7).
RC_GTEST_PROP(FlexDeepEp, NeverSendsMoreRowsThanOthers, ()) {
  const RandomLayer random = random_layer(false);
  if (random.layer.ep == 1) return;
  const Program flex = build("flex-deepep", random.layer), rows = build("alltoall", random.layer),
                all = build("allgather", random.layer);
  const Numbers sent = numbers(flex, named(flex.forward(), "tokens").front().tx),
                most = numbers(rows, messages(rows.forward())[1].tx),
                gathered = numbers(all, the(all.forward(), "hidden states").tx);
  for (std::size_t r = 0; r < sent.size(); ++r) {
    RC_ASSERT(sent[r] <= most[r]);
    RC_ASSERT(sent[r] <= gathered[r]);
  }
}

}  // namespace
}  // namespace moesim::models::testing
