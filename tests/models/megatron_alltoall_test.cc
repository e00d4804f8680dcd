// Megatron AlltoAll (docs/spec.md 2.2): the worked examples to the byte, capacities, padding, memory.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(MegatronAllToAll, Example1) {
  const Example example;
  const Program p = build("alltoall", example.layer);
  const Expected counts{"counts", {64}, {256}, {192}, {192}};
  const Expected tokens{"tokens", {512}, {960, 448, 352, 288}, {256, 384, 384, 448}, {704, 320, 224, 224}};
  const Expected probs{"probabilities", {64}, {120, 56, 44, 36}, {32, 48, 48, 56}, {88, 40, 28, 28}};
  const Expected back{"tokens", {960, 448, 352, 288}, {512}, {704, 320, 224, 224}, {256, 384, 384, 448}};
  expect_messages(p, p.forward(), {counts, tokens, probs, back});
  EXPECT_EQ(total_tx(p, p.forward()), (Numbers{1184, 944, 848, 920}));
  EXPECT_EQ(total_rx(p, p.forward()), (Numbers{1240, 936, 828, 892}));
  EXPECT_EQ(total_tx(p, p.backward()), (Numbers{1048, 744, 636, 700}));
  EXPECT_EQ(total_rx(p, p.backward()), (Numbers{992, 752, 656, 728}));
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.saved_bytes, (Numbers{7544, 3896, 3212, 2756}));
  EXPECT_EQ(p.host_syncs(p.forward()), 1);
  EXPECT_EQ(p.host_syncs(p.backward()), 0);
}

TEST(MegatronAllToAll, Example2EverythingToRankZero) {
  const Example example(example_2());
  const Program p = build("alltoall", example.layer);
  const std::vector<Op> all = messages(p.forward());
  EXPECT_EQ(numbers(p, all[1].tx), (Numbers{0, 512, 512, 512}));
  EXPECT_EQ(numbers(p, all[1].rx), (Numbers{1536, 0, 0, 0}));
  EXPECT_EQ(numbers(p, all[3].tx), (Numbers{1536, 0, 0, 0}));
  EXPECT_EQ(numbers(p, all[3].rx), (Numbers{0, 512, 512, 512}));
  EXPECT_EQ(p.computed_rows, (Numbers{64, 0, 0, 0}));
  EXPECT_EQ(build("alltoall:capacity_factor=1:pad", example.layer).dropped_rows, 4 * (16 - 4));
}

TEST(MegatronAllToAll, Example3RoundRobin) {
  const Example example(example_3());
  const Program p = build("alltoall", example.layer);
  const std::vector<Op> all = messages(p.forward());
  for (const std::size_t i : {1u, 3u}) {
    EXPECT_EQ(numbers(p, all[i].tx), Numbers(4, 384));
    EXPECT_EQ(numbers(p, all[i].rx), Numbers(4, 384));
  }
  EXPECT_EQ(numbers(p, all[2].tx), Numbers(4, 48));
  EXPECT_EQ(p.computed_rows, Numbers(4, 16));
}

TEST(MegatronAllToAll, Example4ExpertTensorParallel) {
  const Routing routing = example_1();
  const Program p = build("alltoall", example_layer(routing, 2, 2));
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 7u);  // counts, tokens, probabilities, AG-V x 2, RS-V, tokens back
  EXPECT_EQ(numbers(p, all[1].out), (Numbers{21 * 32, 23 * 32, 11 * 32, 9 * 32}));
  EXPECT_EQ(numbers(p, all[1].tx), (Numbers{128, 128, 288, 352}));
  EXPECT_EQ(numbers(p, all[1].rx), (Numbers{288, 352, 128, 128}));
  EXPECT_EQ(all[3].comm, CommKind::kAllGatherV);
  EXPECT_EQ(numbers(p, all[3].rx), (Numbers{736, 672, 288, 352}));
  EXPECT_EQ(all[5].comm, CommKind::kReduceScatterV);
  EXPECT_EQ(numbers(p, all[5].in), (Numbers{2816, 2816, 1280, 1280}));
  EXPECT_EQ(numbers(p, all[5].tx), (Numbers{1472, 1344, 576, 704}));
  EXPECT_EQ(p.computed_rows, (Numbers{44, 44, 20, 20}));
  for (const int rank : {0, 1}) EXPECT_EQ(product_rows(p, "fc2", rank), (Numbers{19, 11, 9, 5}));
  for (const int rank : {2, 3}) EXPECT_EQ(product_rows(p, "fc2", rank), (Numbers{6, 5, 5, 4}));
  const Program half = build("alltoall", example_layer(routing, 2, 2, DType::kBf16));
  EXPECT_EQ(numbers(half, messages(half.forward())[5].tx), (Numbers{736, 672, 288, 352}));
}

TEST(MegatronAllToAll, DropAndPad) {
  const Example example;
  const Program p = build("alltoall:capacity_factor=1:pad", example.layer);
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].comm, CommKind::kAllToAll);
  EXPECT_EQ(numbers(p, all[0].in), Numbers(4, 512));
  EXPECT_EQ(numbers(p, all[0].tx), Numbers(4, 384));
  EXPECT_EQ(p.dropped_rows, 64 - 12 - 11 - 14 - 12);
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  // C = 2 of each of 4 ranks, whatever the routing says.
  for (int r = 0; r < 4; ++r) EXPECT_EQ(product_rows(p, "fc1", r), (Numbers{8, 8}));
}

// C = 2: n' = min(n, 2), so that S' = [4 4 2 2; 4 3 2 2; 4 3 4 3; 4 3 3 2]; what is dropped does not travel.
TEST(MegatronAllToAll, DropWithoutPadding) {
  const Example example;
  const Program p = build("alltoall:capacity_factor=1", example.layer);
  const Op tokens = messages(p.forward())[1];
  EXPECT_EQ(numbers(p, tokens.in), (Numbers{12 * 32, 11 * 32, 14 * 32, 12 * 32}));
  EXPECT_EQ(numbers(p, tokens.tx), (Numbers{8 * 32, 8 * 32, 10 * 32, 10 * 32}));
  EXPECT_EQ(p.computed_rows, (Numbers{16, 13, 11, 9}));
  EXPECT_EQ(p.dropped_rows, 64 - 49);
  // Sizes are dynamic: the host waits before it permutes, not before the exchange.
  EXPECT_TRUE(has(p.forward(), "before_permutation_1"));
  EXPECT_FALSE(has(p.forward(), "before_ep_alltoall"));
}

TEST(MegatronAllToAll, PadsRowsBeforeOrBehindTheExchange) {
  const Example example;
  const Program plain = build("alltoall", example.layer);
  const Program behind = build("alltoall:pad_rows=16", example.layer);
  EXPECT_EQ(total_tx(behind, behind.forward()), total_tx(plain, plain.forward()));
  EXPECT_EQ(behind.computed_rows, (Numbers{32 + 16, 16 + 16, 16 + 16, 16 + 16}));
  EXPECT_EQ(behind.dispatched_rows, plain.computed_rows);
  // Multiples of 4 of every n[r][e]: one expert of three ranks gets 5 rows, that is 8, all others 4.
  const Program before = build("alltoall:pad_map=4", example.layer);
  EXPECT_EQ(numbers(before, messages(before.forward())[1].in), (Numbers{36 * 32, 36 * 32, 32 * 32, 36 * 32}));
  EXPECT_TRUE(has(before.forward(), "before_permutation_1"));
}

TEST(MegatronAllToAll, ChunksAreSortedWhereARankHasSeveralExperts) {
  const Example example;
  const Program two = build("alltoall", example.layer);
  EXPECT_EQ(numbers(two, the(two.forward(), "sort chunks").written), (Numbers{960, 448, 352, 288}));
  const Routing eight = make_routing(RoutingSpec(), 8, 8, 8, 2, 1);
  const Program one = build("alltoall", example_layer(eight, 8));
  EXPECT_FALSE(has(one.forward(), "sort chunks"));
  EXPECT_FALSE(has(one.backward(), "unsort chunks backward"));
}

TEST(MegatronAllToAll, WithoutFusionItSortsTheMapAndAddsRows) {
  const Example example;
  const Program p = build("alltoall:permute_fusion=false", example.layer);
  EXPECT_FALSE(has(p.forward(), "row id map"));
  // T*E keys of one byte with a value of eight, 8 bits: one pass.
  EXPECT_EQ(numbers(p, the(p.forward(), "sort map").read), Numbers(4, 8 * 8 * 9));
  // Zeros for T rows, then T*K rows are read twice, their indices once, and written.
  const Op add = the(p.forward(), "unpermute");
  EXPECT_EQ(add.kernel, KernelClass::kScatterAdd);
  EXPECT_EQ(numbers(p, add.read), Numbers(4, 16 * (2 * 32 + 8)));
  EXPECT_EQ(numbers(p, add.written), Numbers(4, 16 * 32 + 8 * 32));
  EXPECT_EQ(build("alltoall", example.layer).saved_bytes, p.saved_bytes);
}

TEST(MegatronAllToAll, RecomputesTheActivationOrTheWholeLayer) {
  Example example;
  const Numbers R_d{30, 14, 11, 9}, all = build("alltoall", example.layer).saved_bytes;
  example.layer.recompute = Recompute::kActivation;
  const Program less = build("alltoall", example.layer);
  example.layer.recompute = Recompute::kFull;
  const Program least = build("alltoall", example.layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(less.saved_bytes[r], all[r] - R_d[r] * 32 * 2);  // F * b
    EXPECT_EQ(least.saved_bytes[r], 8 * 32);                   // T * w
  }
  // The forward program, with its collectives and its host sync, runs again.
  EXPECT_EQ(messages(least.backward()).size(), messages(least.forward()).size() + 3);
  EXPECT_EQ(least.host_syncs(least.backward()), 1);
}

TEST(MegatronAllToAll, PeakOfDispatchAndCombine) {
  const Example example;
  const Program p = build("alltoall", example.layer);
  const Numbers R_d{30, 14, 11, 9};
  for (int r = 0; r < 4; ++r) {
    // Saved before the exchange, then T*K*w + R'*w + the sorted rows (saved).
    const std::int64_t at_dispatch = 256 + 320 + 128 + 16 * 32 + R_d[r] * 32 + R_d[r] * 32;
    EXPECT_GE(p.peak_forward_bytes[r], at_dispatch);
    // Combine: R_d*w*(1+[E_l>1]) + T*K*w + T*w on top of what is saved.
    EXPECT_EQ(p.peak_forward_bytes[r], p.saved_bytes[r] + 2 * R_d[r] * 32 + 512 + 256);
  }
}

TEST(MegatronAllToAll, RefusesOptionsThatContradictEachOther) {
  EXPECT_EQ(
      refusal("alltoall:pad"),
      "--dispatcher: dispatcher alltoall: found pad without capacity_factor, expected a capacity: padding "
      "goes up to it");
  EXPECT_EQ(
      refusal("alltoall:pad_map=2:capacity_factor=1"),
      "--dispatcher: dispatcher alltoall: found pad_map with capacity_factor, expected one of them: both "
      "fix the rows of an expert");
  EXPECT_EQ(refusal("alltoall:pad_map=2:pad_rows=2"),
            "--dispatcher: dispatcher alltoall: found pad_map and pad_rows, expected one of them: rows are "
            "padded before or after the exchange");
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}}));
  EXPECT_EQ(rule("alltoall", uneven.layer), "");
  EXPECT_EQ(rule("alltoall:capacity_factor=1:pad", uneven.layer),
            "drop-and-pad needs the same number of tokens on every rank: all must agree on the capacity");
  EXPECT_EQ(rule("alltoall:shared_overlap=true", uneven.layer),
            "shared_overlap needs a shared expert, this model has none");
}

// More capacity never drops more, nor moves less; enough of it is the dropless program.
RC_GTEST_PROP(MegatronAllToAll, CapacityIsMonotonic, ()) {
  const RandomLayer random = random_layer(true);
  std::int64_t dropped = random.routing.ranks() * random.routing.tokens(0) * random.routing.topk(), moved = 0;
  for (const char* factor : {"0.5", "1", "2", "1000"}) {
    const Program p = build(std::string("alltoall:capacity_factor=") + factor, random.layer);
    std::int64_t rows = 0;
    for (const std::int64_t n : p.computed_rows) rows += n;
    RC_ASSERT(p.dropped_rows <= dropped);
    RC_ASSERT(rows >= moved);
    dropped = p.dropped_rows;
    moved = rows;
  }
  RC_ASSERT(dropped == 0);
  RC_ASSERT(total_tx(build("alltoall:capacity_factor=1000", random.layer),
                     build("alltoall:capacity_factor=1000", random.layer).forward()) ==
            total_tx(build("alltoall", random.layer), build("alltoall", random.layer).forward()));
}

}  // namespace
}  // namespace moesim::models::testing
