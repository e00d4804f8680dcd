#include <gtest/gtest.h>

#include <cmath>

#include "models/answers/doubt.h"
#include "models/workload/scenario.h"

namespace moesim::models {
namespace {

constexpr double kKnown = 0.15, kRecipe = 0.10, kModel = 0.19;

Scenario of(const char* model, const char* recipe = "") {
  Scenario s;
  s.set_model(model);
  s.recipe = recipe;
  return s;
}

TEST(StepSigma, IsSmallestForAModelAndAFrameworkWithPublishedSteps) {
  EXPECT_DOUBLE_EQ(step_sigma(of("deepseek-v3", "megatron-bridge@26.06")), kKnown);
  EXPECT_DOUBLE_EQ(step_sigma(of("deepseek-v3")), kKnown);
}

// DeepSpeed's recipe has no published step; no model with state-space layers and 300 B parameters has one.
TEST(StepSigma, AddsWhatIsNew) {
  EXPECT_DOUBLE_EQ(step_sigma(of("deepseek-v3", "deepspeed")), std::hypot(kKnown, kRecipe));
  Scenario s = of("deepseek-v3");
  s.model.attention.kind = Attention::Kind::kGrouped;
  s.model.attention.index_topk = 2048;
  EXPECT_DOUBLE_EQ(step_sigma(s), std::hypot(kKnown, kModel));
  s.recipe = "deepspeed";
  EXPECT_DOUBLE_EQ(step_sigma(s), std::hypot(kKnown, kRecipe, kModel));
}

// SWIFT, NeMo-RL and transformers took 1.8 to 2.1 times their forecasts.
TEST(StepSigma, OfAnUntunedTrainerHoldsThoseThatWereReported) {
  const double sigma = step_sigma(of("qwen3-30b-a3b", "untuned"));
  EXPECT_DOUBLE_EQ(sigma, std::hypot(kKnown, 0.4));
  EXPECT_GT(std::exp(1.645 * sigma), 1.94);
}

TEST(StepSigma, DoesNotCountThePublicationThatIsLeftOut) {
  EXPECT_DOUBLE_EQ(step_sigma(of("kimi-k2", "maxtext"), "ROCm/rocm-blogs"), std::hypot(kKnown, kRecipe));
  const double left_out = step_sigma(of("kimi-k2"), "NVIDIA-NeMo/Megatron-Bridge");
  EXPECT_GT(left_out, kKnown);  // DeepSeek-V3 is its neighbour, with 256 experts for 384
  EXPECT_LT(left_out, std::hypot(kKnown, kModel));
}

// Layers, not their number or name, make a model known; a small change of them makes it a little less known.
TEST(StepSigma, GrowsWithTheDifferenceOfTheLayers) {
  Scenario s = of("deepseek-v3");
  s.model.layers = 12;
  s.model.name = "mine";
  EXPECT_DOUBLE_EQ(step_sigma(s), kKnown);
  double before = kKnown;
  for (const std::int64_t ffn : {2064, 2200, 3000, 6000}) {
    s.model.expert_ffn = ffn;
    EXPECT_GT(step_sigma(s), before) << ffn;
    before = step_sigma(s);
  }
  s.model.expert_ffn = 2064;
  EXPECT_LT(step_sigma(s), 1.01 * kKnown);
  EXPECT_EQ(difference_of_layers(s.model, s.model), 0);
}

}  // namespace
}  // namespace moesim::models
