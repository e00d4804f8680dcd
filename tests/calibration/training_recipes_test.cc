#include "calibration/training/training_recipes.h"

#include <gtest/gtest.h>

#include "models/dispatchers/dispatcher.h"

namespace moesim::calibration {
namespace {

using models::LaunchMode;

TEST(TrainingRecipes, APatchOfAReleaseCountsAsTheRelease) {
  const auto recipe = [](const char* framework) {
    return recipe_of(framework, "", "", "deepseek-v3", "GB200", "MXFP8", 16);
  };
  EXPECT_EQ(recipe("Megatron-Bridge 26.06").plan.launch, LaunchMode::kGraphs);
  EXPECT_EQ(recipe("Megatron-Bridge 26.06.01").plan.launch, LaunchMode::kGraphs);
  EXPECT_EQ(recipe("Megatron-Bridge 26.04.01").plan.launch, LaunchMode::kPartialGraphs);
  EXPECT_TRUE(recipe("Megatron-Bridge 26.06").plan.fused_kernels);
  EXPECT_FALSE(recipe("Megatron-Bridge 26.04").plan.fused_kernels);
}

TEST(TrainingRecipes, BridgeReducesGradientsInTwoBytesAndNobodyElseIsSaidTo) {
  const TrainingRecipe bridge =
      recipe_of("Megatron-Bridge 26.04", "", "", "deepseek-v3", "H100-SXM5-80GB", "BF16", 16);
  EXPECT_EQ(bridge.plan.gradient_bytes, 2);
  EXPECT_EQ(bridge.dispatcher, "flex-hybridep");
  EXPECT_TRUE(bridge.recompute_known);
  const TrainingRecipe nobody = recipe_of("in-house", "", "", "deepseek-v3", "H100-SXM5-80GB", "BF16", 16);
  EXPECT_EQ(nobody.plan.gradient_bytes, models::TrainingPlan().gradient_bytes);
  EXPECT_EQ(nobody.dispatcher, "alltoall");
  EXPECT_FALSE(nobody.recompute_known);
  EXPECT_TRUE(nobody.source.empty());
}

TEST(TrainingRecipes, EveryDispatcherThatARecipeNamesExists) {
  for (const char* framework :
       {"Megatron-Bridge 26.06", "torchtitan", "MegaScale-MoE", "MCore", "FSDP+EP", "in-house"})
    for (const char* dispatcher : {"", "TP", "DeepEP", "HybridEP"})
      for (const char* model : {"deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b", "mixtral-8x7b"}) {
        const TrainingRecipe r = recipe_of(framework, "", dispatcher, model, "B200", "BF16", 8);
        EXPECT_NO_THROW(models::make_dispatcher(models::DispatcherSpec::parse(r.dispatcher)))
            << framework << ' ' << dispatcher << ' ' << model;
      }
}

TEST(TrainingRecipes, BeforeFoldingExpertsAreSplitLikeTheDensePart) {
  EXPECT_TRUE(recipe_of("MCore", "", "", "mixtral-8x22b", "H100", "BF16", 1).etp_is_tp);
  EXPECT_TRUE(recipe_of("MCore", "", "", "mixtral-8x22b", "H100", "BF16", 1).plan.unfolded);
  EXPECT_FALSE(recipe_of("MCore w/ Folding", "", "", "mixtral-8x22b", "H100", "BF16", 1).etp_is_tp);
}

}  // namespace
}  // namespace moesim::calibration
