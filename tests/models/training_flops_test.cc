// FLOPs of a model in training: a small one by hand, published rates, the parts that pipelines are cut by.
#include "models/step/training_flops.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// Weights that a token meets: attention 64*(64+32+32) + 64*64 in each of 4 layers, the dense FFN 3*64*96, in
// each of 3 MoE layers the router 64*8 and two experts of 3*64*32, the head 64*128; no embedding table.
TEST(TrainingFlops, OfASmallModelByHand) {
  const Architecture a = testing::small_model();
  const double weights = 4 * (64 * 128 + 64 * 64) + 3 * 64 * 96 + 3 * (64 * 8 + 2 * 3 * 64 * 32) + 64 * 128;
  // A query of 4 heads meets half of 256 keys; scores and values are products of 16 columns each.
  const double core = 4 * 2 * 128 * 4 * (16 + 16);
  EXPECT_DOUBLE_EQ(training_flops_per_token(a, 256, 2), 6 * weights + 3 * core);
  EXPECT_DOUBLE_EQ(expert_flops_per_token(a, 2), 6 * 2 * 3 * 64 * 32);
}

TEST(TrainingFlops, LayersAndHeadAddUp) {
  Architecture a = testing::small_model();
  const LayerFlops plain = flops_of_layers(a, 256, 2);
  ASSERT_EQ(plain.layers.size(), 4u);
  EXPECT_DOUBLE_EQ(std::accumulate(plain.layers.begin(), plain.layers.end(), plain.head),
                   training_flops_per_token(a, 256, 2));
  EXPECT_DOUBLE_EQ(plain.head, 6 * 64 * 128);
  EXPECT_DOUBLE_EQ(plain.layers[3] - plain.layers[0], 6 * (64 * 8 + 2 * 3 * 64 * 32 - 3 * 64 * 96.0));
  // A multi-token-prediction layer is a MoE layer with a 2H -> H product and a head of its own.
  a.mtp_layers = 1;
  const LayerFlops more = flops_of_layers(a, 256, 2);
  ASSERT_EQ(more.layers.size(), 5u);
  EXPECT_DOUBLE_EQ(more.layers[4], plain.layers[3] + 6 * 2 * 64 * 64 + plain.head);
}

// A window bounds the keys that a query sees: w - w^2/(2 seq) of them on average.
TEST(TrainingFlops, WindowsSeeFewerKeys) {
  Architecture a = testing::small_model();
  const double all = training_flops_per_token(a, 256, 2);
  a.attention.window = 64;
  a.attention.window_every = 2;  // layers 0 and 2 are windowed
  const double keys = 64 - 64 * 64 / (2 * 256.0);
  EXPECT_DOUBLE_EQ(all - training_flops_per_token(a, 256, 2), 3 * 2 * 2 * (128 - keys) * 4 * 32);
}

TEST(TrainingFlops, AreTheSourcesOwn) {
  // FLOP a token that published rates imply: model TFLOP/s per GPU over tokens/s per GPU of one row each
  // (performance-summary.md of Megatron-Bridge, which counts attention causally). Within 3 %.
  const auto near = [](const char* model, double tflops, double tokens) {
    const Architecture a = Architecture::load(model);
    EXPECT_NEAR(training_flops_per_token(a, 4096, a.topk) / (tflops * 1e12 / tokens), 1, 0.03) << model;
  };
  near("deepseek-v3", 1635, 6288);
  near("gpt-oss-120b", 1077, 33024);
  near("qwen3-30b-a3b", 1029, 44544);
  // arXiv 2412.19437: 14.8 T tokens took 2.664 M H800 hours; 6 x 37 B active parameters are a lower bound,
  // the causal core adds less than a fifth.
  const Architecture v3 = Architecture::load("deepseek-v3");
  const double weights = 6.0 * static_cast<double>(v3.active_parameters());
  EXPECT_GT(training_flops_per_token(v3, 4096, v3.topk), weights);
  EXPECT_LT(training_flops_per_token(v3, 4096, v3.topk), 1.2 * weights);
}

}  // namespace
}  // namespace moesim::models
