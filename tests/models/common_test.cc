// Shared computations of every dispatcher (docs/spec.md 1.1, 1.2, 1.5 to 1.7): sizes, experts, row kernels.
#include "models/dispatchers/parts/common.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(LayerSizes, OfExample1) {
  const Example example;
  const LayerSizes f(example.layer);
  EXPECT_EQ(f.R, 4);
  EXPECT_EQ(f.E_l, 2);
  EXPECT_EQ(f.w, 32);
  EXPECT_EQ(f.b_p, 4);
  EXPECT_EQ(f.F_up, 2 * 32);
  EXPECT_EQ(f.tokens, Numbers(4, 8));
  EXPECT_EQ(f.sent, Numbers(4, 16));
  EXPECT_EQ(f.arrived, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(f.computed, f.arrived);
  EXPECT_EQ(f.experts, (Numbers{19, 11, 9, 5, 6, 5, 5, 4}));
  EXPECT_EQ(f.splits, (Numbers{8, 4, 2, 2, 8, 4, 2, 2, 6, 3, 4, 3, 8, 3, 3, 2}));
}

// rank = etp + 2*ep; EP groups {0,2} and {1,3} have a matrix each, both ranks of an ETP group compute all
// rows.
TEST(LayerSizes, OfExample4) {
  const Example example(example_1(), 2, 2);
  const LayerSizes f(example.layer);
  EXPECT_EQ(f.F, 16);
  EXPECT_EQ(f.splits, (Numbers{12, 4, 9, 7, 12, 4, 11, 5}));
  EXPECT_EQ(f.arrived, (Numbers{21, 23, 11, 9}));
  EXPECT_EQ(f.computed, (Numbers{44, 44, 20, 20}));
}

RC_GTEST_PROP(LayerSizes, RowsAreConserved, ()) {
  const RandomLayer random = random_layer(true, false);
  const LayerSizes f(random.layer);
  std::int64_t sent = 0, arrived = 0, computed = 0, split = 0, experts = 0;
  for (int r = 0; r < f.R; ++r) {
    RC_ASSERT(f.sent[r] == f.tokens[r] * f.K);
    sent += f.sent[r];
    arrived += f.arrived[r];
    computed += f.computed[r];
  }
  for (const std::int64_t rows : f.splits) split += rows;
  for (const std::int64_t rows : f.experts) experts += rows;
  RC_ASSERT(sent == arrived);
  RC_ASSERT(sent == split);
  RC_ASSERT(computed == f.etp * sent);
  RC_ASSERT(experts == computed);
}

TEST(Numbers, AreRoundedAndSummed) {
  EXPECT_EQ(ceil_div(7, 4), 2);
  EXPECT_EQ(round_up(7, 4), 8);
  EXPECT_EQ(round_up(8, 4), 8);
  EXPECT_EQ(round_up_each({0, 1, 16, 17}, 16), (Numbers{0, 16, 16, 32}));
  EXPECT_EQ(sums_per_rank({1, 2, 3, 4, 5, 6}, 3), (Numbers{6, 15}));
  EXPECT_EQ(bits_for(1), 1);
  EXPECT_EQ(bits_for(2), 1);
  EXPECT_EQ(bits_for(8), 3);
  EXPECT_EQ(bits_for(9), 4);
  EXPECT_EQ(bits_for(256), 8);
}

// A builder of two ranks with one forward pass.
struct Pass {
  ProgramBuilder b{2, 1};
  Pass() { b.begin(ProgramBuilder::Pass::kForward); }
};

TEST(RowKernels, MoveWhatTheTableSays) {
  Pass pass;
  gather_rows(pass.b, "gather", Category::permute, {3, 5}, 32);
  scatter_add(pass.b, "add", Category::unpermute, {3, 5}, {2, 4}, 32);
  sort_keys(pass.b, "int64", Category::permute, {3, 5}, 8, 8, 64);
  sort_keys(pass.b, "few", Category::permute, {3, 5}, 4, 4, 3);
  sort_keys(pass.b, "nine bits", Category::permute, {3, 5}, 4, 4, 9);
  const Program p = pass.b.finish();
  const Op gather = the(p.forward(), "gather"), add = the(p.forward(), "add"),
           sort = the(p.forward(), "int64");
  EXPECT_EQ(numbers(p, gather.read), (Numbers{3 * 40, 5 * 40}));  // n*w + 8n
  EXPECT_EQ(numbers(p, gather.written), (Numbers{3 * 32, 5 * 32}));
  EXPECT_EQ(numbers(p, add.read), (Numbers{3 * 72, 5 * 72}));  // n*w + 8n, and the target's rows
  EXPECT_EQ(numbers(p, add.written), (Numbers{3 * 32 + 2 * 32, 5 * 32 + 4 * 32}));
  EXPECT_EQ(add.launches, 2);  // zeros, sum
  EXPECT_EQ(numbers(p, sort.read), (Numbers{8 * 3 * 16, 8 * 5 * 16}));
  EXPECT_EQ(numbers(p, sort.written), numbers(p, sort.read));
  EXPECT_EQ(the(p.forward(), "few").launches, 1);
  EXPECT_EQ(the(p.forward(), "nine bits").launches, 2);
}

std::int64_t flops(const Program& p, const std::vector<Op>& pass, int rank) {
  std::int64_t sum = 0;
  for (const Op& op : pass)
    if (op.kind == OpKind::kGemm)
      for (const std::int64_t rows : p.expert_rows(op.table, rank)) sum += op.repeat * 2 * rows * op.n * op.k;
  return sum;
}

// Gated: forward 6*M*H*F', backward 12*M*H*F', whether gate and up are one weight or two.
TEST(ExpertBlock, FlopsOfExample1) {
  const Example example;
  for (const bool split : {false, true}) {
    const LayerSizes f(example.layer);
    ProgramBuilder b(4, 1);
    ExpertBlock block = expert_block(example.layer, f, b);
    block.split_gate = split;
    b.begin(ProgramBuilder::Pass::kForward);
    experts_forward(b, block);
    free_expert_output(b, block);
    b.begin(ProgramBuilder::Pass::kBackward);
    experts_backward(b, block);
    const Program p = b.finish();
    const Numbers expected{92160, 43008, 33792, 27648};
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(flops(p, p.forward(), r), expected[r]);
      EXPECT_EQ(flops(p, p.backward(), r), 2 * expected[r]);
      // fc1 output and fc2 input; the activation reads one and writes the other.
      const std::int64_t rows = f.computed[r];
      EXPECT_EQ(p.saved_bytes[r], rows * (64 + 32) * 2);
      EXPECT_EQ(p.value(the(p.forward(), "activation").read, r), rows * 64 * 2);
      // A_peak_b without the incoming gradient, which is the caller's: R_d*(w + (F_up + F')*b).
      EXPECT_EQ(p.peak_backward_bytes[r] - p.saved_bytes[r], rows * (32 + (64 + 32) * 2));
    }
    EXPECT_EQ(the(p.forward(), "fc1").n, split ? 32 : 64);
    EXPECT_EQ(product_launches(p.forward()), split ? 3 : 2);
  }
}

TEST(ExpertBlock, RecomputesTheActivationInBackward) {
  Example example;
  example.layer.recompute = Recompute::kActivation;
  const LayerSizes f(example.layer);
  ProgramBuilder b(4, 1);
  ExpertBlock block = expert_block(example.layer, f, b);
  block.probability = true;
  b.begin(ProgramBuilder::Pass::kForward);
  experts_forward(b, block);
  free_expert_output(b, block);
  b.begin(ProgramBuilder::Pass::kBackward);
  experts_backward(b, block);
  const Program p = b.finish();
  EXPECT_EQ(p.saved_bytes[0], 30 * 64 * 2);
  // With the probability multiplied inside: M*2F*b + M*b_p.
  EXPECT_EQ(p.value(the(p.backward(), "activation again").read, 0), 30 * (64 * 2 + 4));
}

TEST(BatchOverlap, IsOfTrainingWithoutOtherOverlap) {
  Example example;
  EXPECT_FALSE(rule_against_batch_overlap(example.layer, false));
  EXPECT_EQ(rule_against_batch_overlap(example.layer, true).value_or(""),
            "batch_overlap excludes shared_overlap: both fill the time of the exchange");
  example.layer.recompute = Recompute::kFull;
  EXPECT_EQ(rule_against_batch_overlap(example.layer, false).value_or(""),
            "batch_overlap excludes full recompute of the layer");
  example.layer.train = false;
  EXPECT_EQ(rule_against_batch_overlap(example.layer, false).value_or(""),
            "batch_overlap interleaves a backward with a forward: it needs training");
}

// Rows that only fill up tiles are computed but not dispatched; balanced rows are T*K.
TEST(Finish, TellsTokensFromPadding) {
  const Example example;
  const LayerSizes f(example.layer);
  ProgramBuilder b(4, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  const Program p = finish(b, example.layer, f, {48, 32, 10, 9});
  EXPECT_EQ(p.computed_rows, (Numbers{48, 32, 10, 9}));
  EXPECT_EQ(p.dispatched_rows, (Numbers{30, 14, 10, 9}));
  EXPECT_EQ(p.balanced_rows, Numbers(4, 16));
  EXPECT_EQ(p.tokens, Numbers(4, 8));
}

}  // namespace
}  // namespace moesim::models::testing
