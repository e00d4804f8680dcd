// Tensors that a layer keeps until backward, and the further needs of backward; all by hand.
#include "models/step/kept_activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {
namespace {

// A layer of Mixtral on one GPU, from the shapes that Megatron-Core saves.
TEST(KeptByLayer, AttentionOfMixtralByHand) {
  const Architecture model = Architecture::load("mixtral-8x7b");
  Parallel p;
  p.seq = 1024;
  TrainingSettings plan;
  const double T = 1024, H = 4096, heads = 32, kv = 8, d = 128;
  const auto kept = [&] { return bytes_of(kept_by_layer(model, p, plan, LayerKind{})); };
  LayerKind dense{LayerKind::Mixer::kAttention, LayerKind::Ffn::kNone, false};
  const auto attention = [&] { return bytes_of(kept_by_layer(model, p, plan, dense)); };
  // Both sides of the norm; queries, keys, values; the projection's input; a log-sum per head.
  EXPECT_DOUBLE_EQ(attention(), T * (4 * H + 2 * (heads + 2 * kv) * d + 2 * heads * d + 4 * heads));
  // Recomputing the core frees the log-sums only: its output stays as the projection's input.
  plan.recompute = StepRecompute::parse("core_attn");
  EXPECT_DOUBLE_EQ(attention(), T * (4 * H + 2 * (heads + 2 * kv) * d + 2 * heads * d));
  plan.recompute = StepRecompute::parse("layernorm");
  EXPECT_DOUBLE_EQ(attention(), T * (2 * H + 2 * (heads + 2 * kv) * d + 2 * heads * d + 4 * heads));
  // Products in fp8 keep their inputs in a byte; attention keeps its own output besides.
  plan.recompute = {};
  plan.set_precision("fp8");
  EXPECT_DOUBLE_EQ(attention(), T * (3 * H + 2 * (heads + 2 * kv) * d + 3 * heads * d + 4 * heads));
  plan = {};
  plan.recompute = StepRecompute::parse("full");
  EXPECT_DOUBLE_EQ(kept(), T * H * 2);
  // Tensor and context parallelism share everything.
  plan = {};
  const double alone = attention();
  p.tp = 2;
  EXPECT_DOUBLE_EQ(attention(), alone / 2);
  p.cp = 2;
  EXPECT_DOUBLE_EQ(attention(), alone / 4);
}

// Korthikanti et al. (arXiv 2205.05198), 4.1: 5 a s^2 b bytes of a layer's scores: probabilities in 2 bytes,
// dropout's mask in one and its output in 2; without dropout 2 a s^2 b.
TEST(KeptByLayer, UnfusedAttentionKeepsScores) {
  Architecture model = Architecture::load("mixtral-8x7b");
  Parallel p;
  p.seq = 1024;
  p.micro_batch = 3;
  TrainingSettings plan;
  const LayerKind kind{LayerKind::Mixer::kAttention, LayerKind::Ffn::kNone, false};
  const auto kept = [&](const char* attention) {
    plan.attention = models::named<AttentionKernel>("attention", attention);
    return bytes_of(kept_by_layer(model, p, plan, kind));
  };
  const double T = 3 * 1024, heads = 32, kv = 8, d = 128, scores = heads * 1024 * 1024 * 3;
  // Keys and values of every head, no log-sums.
  const double others = 2 * 2 * (heads - kv) * d * T - 4 * heads * T;
  EXPECT_DOUBLE_EQ(kept("unfused") - kept("flash"), 2 * scores + others);
  EXPECT_DOUBLE_EQ(kept("unfused-dropout") - kept("flash"), 5 * scores + others);
  const double transient = backward_transient(model, p, plan, kind);
  plan.recompute = StepRecompute::parse("core_attn");
  EXPECT_DOUBLE_EQ(kept("unfused-dropout"), kept("flash"));
  // Computed again, they are held while the layer's backward runs.
  plan.attention = models::named<AttentionKernel>("attention", "unfused");
  EXPECT_GT(backward_transient(model, p, plan, kind), transient);
  // Tensor parallelism shares heads.
  plan.recompute = {};
  const double alone = kept("unfused");
  p.tp = 2;
  EXPECT_DOUBLE_EQ(kept("unfused"), alone / 2);
}

// Without sequence parallelism every rank keeps all rows of what stands between the products.
TEST(KeptByLayer, WithoutSequenceParallelismRowsAreWhole) {
  Parallel p;
  p.seq = 1024;
  p.tp = 4;
  TrainingSettings plan;
  const LayerKind kind{LayerKind::Mixer::kNone, LayerKind::Ffn::kDense, false};
  const auto norms = [&] {
    double bytes = 0;
    for (const KeptTensor& t : kept_by_layer(small_model(), p, plan, kind))
      if (t.name.starts_with("norm/")) bytes += t.bytes;
    return bytes;
  };
  EXPECT_EQ(norms(), 2 * 256 * 64 * 2);
  plan.sequence_parallel = false;
  EXPECT_EQ(norms(), 2 * 1024 * 64 * 2);
}

Parallel tokens(std::int64_t count) {
  Parallel p;
  p.seq = count;
  return p;
}

// 64 tokens, hidden 64, dense FFN 96: both sides of the norm, gate and up, their product.
TEST(KeptByLayer, TensorsOfADenseFfnHaveNames) {
  LayerKind kind{LayerKind::Mixer::kNone, LayerKind::Ffn::kDense, false};
  TrainingSettings plan;
  const auto kept = [&] { return kept_by_layer(small_model(), tokens(64), plan, kind); };
  std::vector<std::pair<std::string, double>> found;
  for (const KeptTensor& t : kept()) found.emplace_back(t.name, t.bytes);
  EXPECT_THAT(found,
              ::testing::ElementsAre(::testing::Pair("norm/input of the FFN's norm", 64 * 64 * 2),
                                     ::testing::Pair("norm/output of the FFN's norm", 64 * 64 * 2),
                                     ::testing::Pair("dense FFN/up projection's output", 64 * 2 * 96 * 2),
                                     ::testing::Pair("dense FFN/activation", 64 * 96 * 2)));
  plan.recompute = StepRecompute::parse("mlp");
  EXPECT_EQ(bytes_of(kept()), 2 * 64 * 64 * 2);
  plan.recompute = StepRecompute::parse("mlp+layernorm");
  EXPECT_EQ(bytes_of(kept()), 64 * 64 * 2);
}

// A MoE layer's router keeps fp32 scores; the rest is the dispatcher's program's.
TEST(KeptByLayer, OfExpertsOnlyScoresAndTheSharedExpert) {
  LayerKind kind{LayerKind::Mixer::kNone, LayerKind::Ffn::kMoe, false};
  Architecture model = small_model();
  TrainingSettings plan;
  const double scores = 64 * 8 * 4, norm = 64 * 64 * 2;
  EXPECT_EQ(bytes_of(kept_by_layer(model, tokens(64), plan, kind)), norm + scores);
  model.shared_ffn = 32;
  EXPECT_EQ(bytes_of(kept_by_layer(model, tokens(64), plan, kind)), norm + scores + 64 * 3 * 32 * 2);
  plan.recompute = StepRecompute::parse("shared_experts");
  EXPECT_EQ(bytes_of(kept_by_layer(model, tokens(64), plan, kind)), norm + scores);
}

// The kept tensors of the dispatcher's program have the names and the sum of its own operations.
TEST(KeptByProgram, IsWhatTheProgramSaves) {
  const Example example;
  const Architecture model = Architecture::load("mixtral-8x7b");
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "flex-hybridep", "expert-tp"}) {
    SCOPED_TRACE(dispatcher);
    const Program program = build(dispatcher, example.layer);
    for (int r = 0; r < program.ranks(); ++r) {
      const auto kept = kept_by_program(program, r, model, TrainingSettings());
      EXPECT_GT(kept.size(), 2u);
      EXPECT_NEAR(bytes_of(kept), static_cast<double>(program.saved_bytes[static_cast<std::size_t>(r)]),
                  1e-6);
      for (const char* precision : {"bf16", "mxfp8"})
        for (const char* recompute : {"none", "layernorm", "full"}) {
          TrainingSettings plan;
          plan.set_precision(precision);
          plan.recompute = StepRecompute::parse(recompute);
          EXPECT_NEAR(bytes_of(kept_by_program(program, r, model, plan)), kept_bytes(program, r, model, plan),
                      1e-6);
        }
    }
  }
}

// The gradient of the residual stream, and the larger of the up projection's and of queries, keys and
// values'.
TEST(BackwardTransient, IsTheStreamAndTheLargestGradient) {
  const LayerKind dense, moe{LayerKind::Mixer::kAttention, LayerKind::Ffn::kMoe, false};
  TrainingSettings plan;
  const double stream = 64 * 64 * 2, up = 64 * 2 * 96 * 2, qkv = 64 * (64 + 32 + 32) * 2;
  EXPECT_EQ(backward_transient(small_model(), tokens(64), plan, dense), stream + up);
  EXPECT_EQ(backward_transient(small_model(), tokens(64), plan, moe), stream + qkv);
  // Recomputed, gate, up and their product are there again.
  plan.recompute = StepRecompute::parse("mlp");
  EXPECT_EQ(backward_transient(small_model(), tokens(64), plan, dense), stream + up + 64 * 3 * 96 * 2);
  // The gathered rows of two products with tensor parallelism, and half of every width.
  Parallel half = tokens(64);
  half.tp = 2;
  plan = {};
  EXPECT_EQ(backward_transient(small_model(), half, plan, dense), stream / 2 + 2 * stream + up / 2);
}

// [q+k+v, H] = [128, 64], [H, v] = [64, 64], dense [192, 64] and [64, 96]; an expert's up has the shape of
// the projection and is not counted again, its down [64, 32] is.
TEST(DistinctWeights, CountsEveryShapeOnce) {
  const LayerKind dense, moe{LayerKind::Mixer::kAttention, LayerKind::Ffn::kMoe, false};
  const double attention = 128 * 64 + 64 * 64, ffn = 192 * 64 + 64 * 96;
  EXPECT_EQ(distinct_weights(small_model(), tokens(64), {dense}), attention + ffn);
  EXPECT_EQ(distinct_weights(small_model(), tokens(64), {dense, dense, moe, moe}), attention + ffn + 64 * 32);
  EXPECT_EQ(distinct_weights(small_model(), tokens(64), {}), 0);
}

}  // namespace
}  // namespace moesim::models::testing
