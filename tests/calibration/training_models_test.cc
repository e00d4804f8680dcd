#include "calibration/training/training_models.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moesim::calibration {
namespace {

std::optional<models::Architecture> model(const std::string& name, const std::string& source = "") {
  std::vector<std::string> assumptions;
  return training_model(name, source, assumptions);
}

TEST(TrainingModels, TablesSpellNamesInManyWays) {
  for (const char* name : {"DeepSeek-V3", "deepseek_v3 671B", "DeepSeek V3 (MTP)"})
    EXPECT_EQ(model(name)->name, "deepseek-v3") << name;
  EXPECT_EQ(model("Qwen3 30B-A3B")->name, "qwen3-30b-a3b");
  EXPECT_EQ(model("DeepSeek-V3-16B")->name, "deepseek-v2-lite");  // torchtitan's test size
  EXPECT_FALSE(model("a model of nobody"));
}

TEST(TrainingModels, ExpertsCutIntoEightKeepTheirParameters) {
  const auto whole = model("Mixtral-8x22B"), cut = model("Mixtral-8x22B-G8T8");
  ASSERT_TRUE(whole && cut);
  EXPECT_EQ(cut->experts, 8 * whole->experts);
  EXPECT_EQ(cut->topk, 8);
  EXPECT_EQ(cut->experts * cut->expert_ffn, whole->experts * whole->expert_ffn);
}

TEST(TrainingModels, SizesInANameAreTheModel) {
  std::vector<std::string> assumptions;
  const auto a =
      training_model("GRUG MoE d5120 L48 e256 top8 i1280 + shared 2560 dense 8192", "", assumptions);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->hidden, 5120);
  EXPECT_EQ(a->layers, 48);
  EXPECT_EQ(a->experts, 256);
  EXPECT_EQ(a->topk, 8);
  EXPECT_EQ(a->expert_ffn, 1280);
  EXPECT_EQ(a->dense_ffn, 8192);
  EXPECT_EQ(a->dense_layers, 1);
  EXPECT_EQ(a->attention.heads * a->attention.head_dim, a->hidden);
  EXPECT_EQ(assumptions.size(), 1u);  // heads and vocabulary are not in the name
  EXPECT_FALSE(training_model("GRUG MoE d5120 L48 e256", "", assumptions));
}

TEST(TrainingModels, MegaScalesTableHasNoSharedExpertsAndNoDenseLayers) {
  const auto here = model("DeepSeekMoE-16B"), there = model("DeepSeekMoE-16B", "arXiv 2505.11432 table 3");
  ASSERT_TRUE(here && there);
  EXPECT_GT(here->shared_ffn, 0);
  EXPECT_GT(here->dense_layers, 0);
  EXPECT_EQ(there->shared_ffn, 0);
  EXPECT_EQ(there->dense_layers, 0);
  EXPECT_EQ(there->experts, here->experts);
}

TEST(TrainingModels, DenseModelsAreKnownByTheirWholeName) {
  const auto a = dense_model("Llama-3 70B");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->experts, 0);
  EXPECT_NEAR(static_cast<double>(a->parameters()), 70.6e9, 0.1e9);  // as its card counts
  EXPECT_EQ(a->layers, 80);
  EXPECT_EQ(a->dense_ffn, 28672);
  EXPECT_FALSE(dense_model("Llama-3 70B instruct"));
}

}  // namespace
}  // namespace moesim::calibration
