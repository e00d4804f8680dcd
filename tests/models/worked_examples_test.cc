// The worked examples of docs/spec.md 6.3, to the byte. Numbers are the specification's.
#include <gtest/gtest.h>

#include "models/dispatchers/parts/equal_split.h"
#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

struct Expected {
  std::string_view what;
  Numbers in, out, tx, rx;
};

void expect_messages(const Program& program, const std::vector<Op>& pass,
                     const std::vector<Expected>& expected) {
  const std::vector<Op> all = messages(pass);
  ASSERT_EQ(all.size(), expected.size());
  const auto each = [&](Numbers n) { return n.size() == 1 ? Numbers(program.ranks(), n[0]) : n; };
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(std::string(expected[i].what));
    EXPECT_EQ(all[i].name, expected[i].what);
    EXPECT_EQ(numbers(program, all[i].in), each(expected[i].in));
    EXPECT_EQ(numbers(program, all[i].out), each(expected[i].out));
    EXPECT_EQ(numbers(program, all[i].tx), each(expected[i].tx));
    EXPECT_EQ(numbers(program, all[i].rx), each(expected[i].rx));
  }
}

TEST(WorkedExample1, Routing) {
  const Routing routing = example_1();
  const Numbers n{5, 3, 2, 2, 1, 1, 1, 1, 5, 3, 3, 1, 1, 1, 1, 1,
                  4, 2, 2, 1, 2, 2, 2, 1, 5, 3, 2, 1, 2, 1, 1, 1};
  for (int r = 0; r < 4; ++r)
    for (int e = 0; e < 8; ++e) EXPECT_EQ(routing.count(r, e), n[r * 8 + e]);
  EXPECT_EQ(routing.expert_totals(), (Numbers{19, 11, 9, 5, 6, 5, 5, 4}));
  EXPECT_EQ(routing.split_matrix(4), (Numbers{8, 4, 2, 2, 8, 4, 2, 2, 6, 3, 4, 3, 8, 3, 3, 2}));
  EXPECT_EQ(routing.dedup_matrix(4), (Numbers{7, 4, 2, 2, 6, 3, 1, 2, 4, 3, 4, 3, 6, 3, 3, 2}));
  EXPECT_DOUBLE_EQ(routing.rank_imbalance(4), 1.875);
}

TEST(WorkedExample1, AlltoAll) {
  const Routing routing = example_1();
  const Program p = build("alltoall", example_layer(routing));
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
  EXPECT_EQ(Program::host_syncs(p.forward()), 1);
  EXPECT_EQ(Program::host_syncs(p.backward()), 0);
}

TEST(WorkedExample1, AllGather) {
  const Routing routing = example_1();
  const Program p = build("allgather", example_layer(routing));
  expect_messages(p, p.forward(),
                  {{"routing map", {64}, {256}, {192}, {192}},
                   {"probabilities", {256}, {1024}, {768}, {768}},
                   {"hidden states", {256}, {1024}, {768}, {768}},
                   {"output", {2048}, {512}, {1536}, {1536}}});
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 3264));
  EXPECT_EQ(total_tx(p, p.backward()), Numbers(4, 3072));
  EXPECT_EQ(p.saved_bytes, (Numbers{7656, 3880, 3172, 2700}));
  EXPECT_EQ(Program::host_syncs(p.forward()), 2);

  const Program half = build("allgather", example_layer(routing, 4, 1, DType::kBf16));
  EXPECT_EQ(total_tx(half, half.forward()), Numbers(4, 2112));
  EXPECT_EQ(total_tx(half, half.backward()), Numbers(4, 1920));
  EXPECT_EQ(numbers(half, messages(half.forward()).back().tx), Numbers(4, 768));
}

TEST(WorkedExample1, DropAndPad) {
  const Routing routing = example_1();
  const Program p = build("alltoall:capacity_factor=1:pad", example_layer(routing));
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].comm, CommKind::kAllToAll);
  EXPECT_EQ(numbers(p, all[0].in), Numbers(4, 512));
  EXPECT_EQ(numbers(p, all[0].tx), Numbers(4, 384));
  EXPECT_EQ(p.dropped_rows, 64 - 12 - 11 - 14 - 12);
  EXPECT_EQ(Program::host_syncs(p.forward()), 0);
}

TEST(WorkedExample2, EverythingToRankZero) {
  const Routing routing = example_2();
  const Program p = build("alltoall", example_layer(routing));
  const std::vector<Op> all = messages(p.forward());
  EXPECT_EQ(numbers(p, all[1].tx), (Numbers{0, 512, 512, 512}));
  EXPECT_EQ(numbers(p, all[1].rx), (Numbers{1536, 0, 0, 0}));
  EXPECT_EQ(numbers(p, all[3].tx), (Numbers{1536, 0, 0, 0}));
  EXPECT_EQ(numbers(p, all[3].rx), (Numbers{0, 512, 512, 512}));
  EXPECT_EQ(p.computed_rows, (Numbers{64, 0, 0, 0}));
  const Program gather = build("allgather", example_layer(routing));
  EXPECT_EQ(numbers(gather, messages(gather.forward())[2].tx), Numbers(4, 768));
  const Program padded = build("alltoall:capacity_factor=1:pad", example_layer(routing));
  EXPECT_EQ(padded.dropped_rows, 4 * (16 - 4));
}

TEST(WorkedExample3, RoundRobin) {
  const Routing routing = example_3();
  EXPECT_EQ(routing.split_matrix(4), Numbers(16, 4));
  EXPECT_EQ(routing.dedup_matrix(4), Numbers(16, 2));
  const Program p = build("alltoall", example_layer(routing));
  const std::vector<Op> all = messages(p.forward());
  for (const std::size_t i : {1u, 3u}) {
    EXPECT_EQ(numbers(p, all[i].tx), Numbers(4, 384));
    EXPECT_EQ(numbers(p, all[i].rx), Numbers(4, 384));
  }
  EXPECT_EQ(numbers(p, all[2].tx), Numbers(4, 48));
  EXPECT_EQ(p.computed_rows, Numbers(4, 16));
}

TEST(WorkedExample4, ExpertTensorParallel) {
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
  int table = -1;
  for (const Op& op : p.forward())
    if (op.kind == OpKind::kGemm) table = op.table;
  for (const int rank : {0, 1})
    EXPECT_EQ(Numbers(p.expert_rows(table, rank).begin(), p.expert_rows(table, rank).end()),
              (Numbers{19, 11, 9, 5}));
  for (const int rank : {2, 3})
    EXPECT_EQ(Numbers(p.expert_rows(table, rank).begin(), p.expert_rows(table, rank).end()),
              (Numbers{6, 5, 5, 4}));
  const Program half = build("alltoall", example_layer(routing, 2, 2, DType::kBf16));
  EXPECT_EQ(numbers(half, messages(half.forward())[5].tx), (Numbers{736, 672, 288, 352}));
}

TEST(WorkedExample1, AllGatherLegacy) {
  const Routing routing = example_1();
  const Program p = build("allgather-legacy", example_layer(routing));
  expect_messages(p, p.forward(),
                  {{"hidden states", {256}, {1024}, {768}, {768}},
                   {"indices", {128}, {512}, {384}, {384}},
                   {"probabilities", {64}, {256}, {192}, {192}},
                   {"output", {1024}, {256}, {768}, {768}}});
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 2112));
  EXPECT_EQ(Program::host_syncs(p.forward()), 4);
}

TEST(WorkedExample1, AlltoAllLegacyIsTheRecordedSequence) {
  const Routing routing = example_1();
  const Program p = build("alltoall-legacy", example_layer(routing));
  const std::vector<Op> forward = messages(p.forward()), backward = messages(p.backward());
  ASSERT_EQ(forward.size(), 3u);
  EXPECT_EQ(forward[0].comm, CommKind::kAllGather);
  EXPECT_EQ(numbers(p, forward[0].in), Numbers(4, 64));
  EXPECT_EQ(numbers(p, forward[1].in), Numbers(4, 512));
  EXPECT_EQ(numbers(p, forward[2].in), (Numbers{960, 448, 352, 288}));
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(numbers(p, backward[0].in), Numbers(4, 512));
  EXPECT_EQ(numbers(p, backward[1].in), (Numbers{960, 448, 352, 288}));
}

TEST(WorkedExample1, Torchtitan) {
  const Routing routing = example_1();
  const Program p = build("torchtitan-alltoall", example_layer(routing));
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(numbers(p, all[0].in), Numbers(4, 64));
  EXPECT_EQ(numbers(p, all[0].tx), Numbers(4, 48));
  EXPECT_EQ(total_tx(p, p.forward()), (Numbers{1008, 752, 656, 720}));
  EXPECT_EQ(Program::host_syncs(p.forward()), 1);
  const Program ao = build("torchtitan-torchao", example_layer(routing));
  EXPECT_EQ(ao.computed_rows, (Numbers{48, 32, 32, 32}));
  EXPECT_EQ(total_tx(ao, ao.forward()), total_tx(p, p.forward()));
}

TEST(WorkedExample1, EqualSplit) {
  const Routing routing = example_1();
  const Program p = build("torchtitan-equal-split", example_layer(routing));
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 4u);  // counts, the largest chunk, tokens, combine
  EXPECT_EQ(numbers(p, all[2].in), Numbers(4, 1024));
  EXPECT_EQ(numbers(p, all[2].tx), Numbers(4, 768));
  const std::int64_t total = p.value(all[0].tx, 0) + p.value(all[2].tx, 0) + p.value(all[3].tx, 0);
  EXPECT_EQ(total, 1584);
  // Overheads 0.391, 1.133, 1.370, 1.560: the worst exceeds 0.10, so that the adaptive policy does not pad.
  const Program adaptive = build("torchtitan-equal-split:policy=adaptive", example_layer(routing));
  EXPECT_EQ(messages(adaptive.forward())[2].comm, CommKind::kAllToAllV);
  const Program lenient =
      build("torchtitan-equal-split:policy=adaptive:threshold=1.57", example_layer(routing));
  EXPECT_EQ(messages(lenient.forward())[2].comm, CommKind::kAllToAll);
}

TEST(WorkedExample1, EqualSplitOverheads) {
  const Routing routing = example_1();
  const MoeLayer layer = example_layer(routing);
  const EqualSplit split{LayerSizes(layer)};
  EXPECT_EQ(split.m, 8);
  const std::vector<double> expected{0.391, 1.133, 1.370, 1.560};
  for (int r = 0; r < 4; ++r) EXPECT_NEAR(split.overheads[r], expected[r], 5e-4);
}

TEST(WorkedExample1, KempnerForge) {
  const Routing routing = example_1();
  const Program p = build("kempnerforge:replicated=false", example_layer(routing));
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(numbers(p, all[0].in), Numbers(4, 32));
  EXPECT_EQ(numbers(p, all[0].tx), Numbers(4, 24));
  EXPECT_EQ(all[2].dtype, DType::kFp32);
  EXPECT_EQ(numbers(p, all[2].in), Numbers(4, 64));
  EXPECT_EQ(numbers(p, all[2].out), (Numbers{120, 56, 44, 36}));
  EXPECT_EQ(numbers(p, all[2].tx), (Numbers{32, 48, 48, 56}));
  EXPECT_EQ(total_tx(p, p.forward()), (Numbers{1016, 776, 680, 752}));
  EXPECT_EQ(total_rx(p, p.forward()), (Numbers{1072, 768, 660, 724}));
  EXPECT_EQ(total_tx(p, p.backward()), (Numbers{960, 704, 608, 672}));
  EXPECT_EQ(total_rx(p, p.backward()), (Numbers{960, 704, 608, 672}));
  EXPECT_EQ(messages(p.backward()).size(), 2u);
  EXPECT_EQ(Program::host_syncs(p.forward()), 7);  // three explicit, four hidden in bincount
}

TEST(WorkedExample1, Deduplicated) {
  const Routing routing = example_1();
  for (const char* name : {"flex-deepep", "flex-hybridep"}) {
    const Program p = build(name, example_layer(routing));
    bool found = false;
    for (const Op& op : messages(p.forward()))
      if (op.name == "tokens" && !op.transposed) {
        EXPECT_EQ(numbers(p, op.tx), (Numbers{256, 288, 320, 384}));
        EXPECT_EQ(numbers(p, op.rx), (Numbers{512, 320, 192, 224}));
        found = true;
      }
    EXPECT_TRUE(found);
  }
}

TEST(WorkedExample1, MegaBlocks) {
  const Routing routing = example_1();
  MoeLayer layer = example_layer(routing);
  EXPECT_EQ(build("megablocks-moe", layer).dropped_rows, 64 - 61);
  EXPECT_EQ(build("megablocks-moe", layer).computed_rows, Numbers(4, 2 * 16));
  EXPECT_EQ(build("megablocks-moe:nominal_capacity=true", layer).dropped_rows, 64 - 49);
  layer.expert_ffn = 128;
  EXPECT_EQ(build("megablocks-dmoe-sparse", layer).computed_rows, Numbers(4, 256));
  EXPECT_EQ(build("megablocks-dmoe-grouped", layer).computed_rows, (Numbers{30, 14, 11, 9}));
}

TEST(WorkedExample2, OtherDispatchers) {
  const Routing routing = example_2();
  const MoeLayer layer = example_layer(routing);
  const Program equal = build("torchtitan-equal-split", layer);
  EXPECT_EQ(numbers(equal, messages(equal.forward())[2].tx), Numbers(4, 1536));
  const EqualSplit split{LayerSizes(layer)};
  EXPECT_NEAR(split.overheads[0], 0.6, 1e-12);
  EXPECT_NEAR(split.overheads[1], 7, 1e-12);
  const Program kempner = build("kempnerforge:replicated=false", layer);
  EXPECT_EQ(numbers(kempner, messages(kempner.forward())[2].tx), (Numbers{0, 64, 64, 64}));
  EXPECT_EQ(numbers(kempner, messages(kempner.forward())[2].rx), (Numbers{192, 0, 0, 0}));
  const Program deepep = build("flex-deepep", layer);
  for (const Op& op : messages(deepep.forward()))
    if (op.name == "tokens" && !op.transposed) {
      EXPECT_EQ(numbers(deepep, op.tx), (Numbers{0, 256, 256, 256}));
      EXPECT_EQ(numbers(deepep, op.rx), (Numbers{768, 0, 0, 0}));
    }
}

TEST(WorkedExample3, OtherDispatchers) {
  const Routing routing = example_3();
  const MoeLayer layer = example_layer(routing);
  const Program equal = build("torchtitan-equal-split", layer);
  EXPECT_EQ(numbers(equal, messages(equal.forward())[2].tx), Numbers(4, 384));
  EXPECT_EQ(EqualSplit{LayerSizes(layer)}.worst(), 0);
  // K = local experts = 2: the direct input is legal.
  const Program direct = build("torchtitan-force-balance:direct=true", layer);
  EXPECT_EQ(Program::host_syncs(direct.forward()), 0);
  ASSERT_EQ(messages(direct.forward()).size(), 2u);
  EXPECT_EQ(messages(direct.forward())[0].comm, CommKind::kAllToAll);
  EXPECT_EQ(numbers(direct, messages(direct.forward())[0].tx), Numbers(4, 384));
  const Program deepep = build("flex-deepep", layer);
  for (const Op& op : messages(deepep.forward()))
    if (op.name == "tokens" && !op.transposed) {
      EXPECT_EQ(numbers(deepep, op.tx), Numbers(4, 192));
    }
}

// T=16384, K=3, E=36, EP=12, rank 4 (docs/spec.md 2.8).
TEST(ForcedBalance, TestVector) {
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kRoundRobin;
  const Routing routing = make_routing(spec, 12, 16384, 36, 3, 1);
  const MoeLayer layer = example_layer(routing, 12);
  const Program p = build("torchtitan-force-balance", layer);
  const Op exchange = messages(p.forward())[0];
  ASSERT_EQ(exchange.comm, CommKind::kAllToAllV);
  const auto rows = p.matrix(exchange.matrix, 0);
  for (int d = 0; d < 12; ++d) {
    EXPECT_EQ(rows[4 * 12 + d], d < 4 ? 4098u : 4095u);
    EXPECT_EQ(rows[d * 12 + 4], 4095u);
  }
  for (const std::int64_t count : p.expert_rows(0, 4)) EXPECT_EQ(count, 12 * 1365);
  for (const std::int64_t count : p.expert_rows(0, 0)) EXPECT_EQ(count, 12 * 1366);
}

TEST(WorkedExample4, Flex) {
  const Routing routing = example_1();
  const Program p = build("flex-deepep", example_layer(routing, 2, 2));
  EXPECT_EQ(p.computed_rows, (Numbers{44, 44, 20, 20}));
  for (const Op& op : messages(p.forward()))
    if (op.name == "tokens" && !op.transposed) {
      EXPECT_EQ(numbers(p, op.tx), (Numbers{512, 416, 544, 576}));
      EXPECT_EQ(numbers(p, op.rx), (Numbers{640, 672, 352, 384}));
      EXPECT_EQ(numbers(p, op.out), (Numbers{28 * 32, 28 * 32, 16 * 32, 16 * 32}));
    }
}

// Two MoE layers on the KempnerForge program, the graph edge of rule P removed: ranks without rows skip the
// backward of their dispatch.
TEST(WorkedExample5, PositionMatching) {
  const Routing routing = example_2();
  const Program p = build("kempnerforge:replicated=false", example_layer(routing));
  auto with_edge = issued(p, p.backward(), GroupKind::kEp, 0, "L2 ");
  const auto lower = issued(p, p.backward(), GroupKind::kEp, 0, "L1 ");
  for (std::size_t m = 0; m < 4; ++m)
    with_edge[m].insert(with_edge[m].end(), lower[m].begin(), lower[m].end());
  ASSERT_EQ(with_edge[0].size(), 4u);
  EXPECT_FALSE(match_positions(with_edge));

  auto without = with_edge;
  for (std::size_t m = 1; m < 4; ++m) {
    without[m].erase(without[m].begin() + 3);
    without[m].erase(without[m].begin() + 1);
  }
  const auto mismatch = match_positions(without);
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->position, 2);
  EXPECT_EQ(mismatch->ranks, (std::vector<int>{1, 2, 3}));
  EXPECT_NE(mismatch->text.find("mismatch at position 2, ranks 1-3"), std::string::npos);
  EXPECT_NE(mismatch->text.find("hang"), std::string::npos);
}

}  // namespace
}  // namespace moesim::models::testing
