// KempnerForge (docs/spec.md 2.11): bytes, syncs, branches of the experts, and the rules P and Z.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/programs/check.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(KempnerForge, Example1) {
  const Example example;
  const Program p = build("kempnerforge:replicated=false", example.layer);
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
  EXPECT_EQ(p.host_syncs(p.forward()), 7);  // three explicit, four hidden in bincount
}

// 16 rows of 32 bytes are sent by every rank, 30 14 11 9 arrive.
TEST(KempnerForge, CastsTheOuterUnsortAndTheGraphEdgeMoveTheirBytes) {
  const Example example;
  const Program p = build("kempnerforge:replicated=false", example.layer);
  const Op there = the(p.forward(), "expert ids as float32"),
           back = the(p.forward(), "expert ids as integers");
  EXPECT_EQ(numbers(p, there.read), Numbers(4, 16 * 8));
  EXPECT_EQ(numbers(p, there.written), Numbers(4, 16 * 4));
  EXPECT_EQ(numbers(p, back.read), (Numbers{120, 56, 44, 36}));
  EXPECT_EQ(numbers(p, back.written), (Numbers{240, 112, 88, 72}));
  const Op unsort = the(p.backward(), "unsort returned rows backward");
  EXPECT_EQ(numbers(p, unsort.read), Numbers(4, 16 * (32 + 8)));
  EXPECT_EQ(numbers(p, unsort.written), Numbers(4, 16 * 32));
  const Numbers arrived{960, 448, 352, 288};
  EXPECT_EQ(numbers(p, the(p.forward(), "keep the graph edge").read), arrived);
  EXPECT_EQ(numbers(p, the(p.forward(), "add the graph edge").read), arrived);
  EXPECT_EQ(numbers(p, the(p.forward(), "add the graph edge").written), arrived);
  EXPECT_EQ(numbers(p, the(p.backward(), "keep the graph edge backward").read), arrived);
  EXPECT_EQ(numbers(p, the(p.backward(), "add the graph edge backward").written), arrived);
  const Program without = build("kempnerforge:replicated=false:graph_edge=false", [&] {
    MoeLayer inference = example.layer;
    inference.train = false;
    return inference;
  }());
  EXPECT_FALSE(has(without.forward(), "add the graph edge"));
}

TEST(KempnerForge, Example2SendsIdsAsFourBytes) {
  const Example example(example_2());
  const Program p = build("kempnerforge:replicated=false", example.layer);
  const Op ids = the(p.forward(), "expert ids");
  EXPECT_EQ(numbers(p, ids.tx), (Numbers{0, 64, 64, 64}));
  EXPECT_EQ(numbers(p, ids.rx), (Numbers{192, 0, 0, 0}));
}

// Two MoE layers, the graph edge of rule P removed: ranks without rows skip the backward of their dispatch.
TEST(KempnerForge, Example5PositionMatching) {
  const Example example(example_2());
  const Program p = build("kempnerforge:replicated=false", example.layer);
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

TEST(KempnerForge, WithoutTheGraphEdgeAnIdleRankHangsTheGroup) {
  const Example busy, idle(example_2());
  EXPECT_EQ(rule("kempnerforge:replicated=false:graph_edge=false", busy.layer), "");
  EXPECT_THAT(rule("kempnerforge:replicated=false:graph_edge=false", idle.layer),
              ::testing::HasSubstr("mismatch at position 2, ranks 1-3"));
  EXPECT_EQ(rule("kempnerforge:replicated=false", idle.layer), "");
}

TEST(KempnerForge, TokensAreReplicatedUnlessRoutingIsGiven) {
  Example example;
  const Program drawn = build("kempnerforge", example.layer);
  EXPECT_TRUE(drawn.tokens_replicated);
  EXPECT_EQ(drawn.computed_rows, (Numbers{4 * 8, 4 * 4, 4 * 2, 4 * 2}));  // EP * S[0][d]
  example.layer.routing_given = true;
  const Program given = build("kempnerforge", example.layer);
  EXPECT_FALSE(given.tokens_replicated);
  EXPECT_EQ(given.computed_rows, (Numbers{30, 14, 11, 9}));
}

TEST(KempnerForge, KeepsWhatTheFormulaSays) {
  const Example example;
  const std::int64_t T = 8, K = 2, w = 32, H = 16, F = 32, b = 2, bp = 4;
  const Numbers R_d{30, 14, 11, 9};
  const Program packed = build("kempnerforge:replicated=false", example.layer),
                stacked = build("kempnerforge:replicated=false:packed=false", example.layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(packed.saved_bytes[r], T * w + T * K * (24 + bp) + R_d[r] * w + 4 * R_d[r] * F * b + T * K * w);
    EXPECT_EQ(stacked.saved_bytes[r], packed.saved_bytes[r] + 3 * 2 * H * F * 2);
  }
  EXPECT_EQ(stacked.value(the(stacked.forward(), "stack weights").read, 0), 3 * 2 * H * F * 2);
  EXPECT_EQ(stacked.value(the(stacked.backward(), "unstack gradients").read, 0), 3 * 2 * H * F * 2);
}

TEST(KempnerForge, BranchesOfTheExperts) {
  const Example example;
  const Program grouped = build("kempnerforge:replicated=false", example.layer),
                padded = build("kempnerforge:replicated=false:experts=padded", example.layer),
                loop = build("kempnerforge:replicated=false:experts=loop", example.layer);
  EXPECT_EQ(product_launches(grouped.forward()), 3);
  EXPECT_EQ(product_launches(loop.forward()), 3 * 2);
  // E_l times the largest count: N = [19 11 | 9 5 | 6 5 | 5 4].
  EXPECT_EQ(padded.computed_rows, (Numbers{38, 18, 12, 10}));
  EXPECT_EQ(padded.dispatched_rows, grouped.computed_rows);
  // Counts of ranks (one read, two hidden) and received counts; for each of two experts any(), gather, write.
  EXPECT_EQ(loop.host_syncs(loop.forward()), 4 + 2 * 3);
}

// Excess assignments get weight 0; what is sent and computed stays.
TEST(KempnerForge, CapacityReducesNoVolume) {
  const Example example;
  const Program all = build("kempnerforge:replicated=false", example.layer),
                limited = build("kempnerforge:replicated=false:capacity_factor=1", example.layer);
  EXPECT_EQ(limited.dropped_rows, 64 - 49);  // C = 2
  EXPECT_EQ(total_tx(limited, limited.forward()), total_tx(all, all.forward()));
  EXPECT_EQ(limited.computed_rows, all.computed_rows);
}

// Rule Z: ranks 1 to 3 read the parameters of their experts and write zeros as gradients; rank 0 does not.
TEST(KempnerForge, IdleExpertsContributeZeros) {
  const Example example(example_2());
  const Program p = build("kempnerforge:replicated=false", example.layer);
  const Op zero = the(p.forward(), "zero contribution"), gradients = the(p.backward(), "zero gradients");
  const std::int64_t weights = 2 * 3 * 16 * 32 * 2;  // E_l experts of three bf16 matrices
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(p.issues(zero, r), r > 0);
    EXPECT_EQ(p.issues(gradients, r), r > 0);
  }
  EXPECT_EQ(p.value(zero.read, 1), weights);
  EXPECT_EQ(p.value(gradients.written, 1), weights);
  EXPECT_FALSE(has(build("kempnerforge:replicated=false", Example().layer).forward(), "zero contribution"));
}

// Systems.R3_12 has the rest of a layer without expert parallelism.
TEST(KempnerForge, AloneItHasNoGraphEdge) {
  const Example example(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  EXPECT_FALSE(build("kempnerforge", example.layer).tokens_replicated);
  EXPECT_EQ(rule("kempnerforge:graph_edge=false", example.layer),
            "graph_edge applies to the EP exchange, and EP is 1");
}

TEST(KempnerForge, RefusesWhatItHasNot) {
  Example example;
  const Example split(example_1(), 2, 2);
  EXPECT_EQ(rule("kempnerforge", split.layer), "KempnerForge does not split experts over etp");
  example.layer.activation = DType::kFp32;
  EXPECT_EQ(rule("kempnerforge:experts=grouped", example.layer),
            "grouped products take bf16 and fp16; rows of other types go through experts=loop");
  example.layer.activation = DType::kBf16;
  example.layer.train = false;
  EXPECT_EQ(rule("kempnerforge:gradient_scale=true", example.layer),
            "gradient_scale runs where gradients are asked for: it needs training");
}

}  // namespace
}  // namespace moesim::models::testing
