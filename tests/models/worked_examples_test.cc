// The worked examples of docs/dispatchers.md 6.3, to the byte. Numbers are the specification's.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moesim::models::testing
