#include "calibration/training/row_model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::calibration {
namespace {

models::Architecture model(const std::string& name, const std::string& source = "") {
  std::vector<std::string> assumptions;
  const auto named = row_model(name, source, assumptions);
  return named ? models::Architecture::parse(JsonNode::from_json(*named, "")) : models::Architecture();
}

TEST(RowModel, ExpertsCutIntoEightKeepTheirParameters) {
  const auto whole = model("Mixtral-8x22B"), cut = model("Mixtral-8x22B-G8T8 (64 experts top-8)");
  EXPECT_EQ(cut.experts, 8 * whole.experts);
  EXPECT_EQ(cut.topk, 8);
  EXPECT_EQ(cut.experts * cut.expert_ffn, whole.experts * whole.expert_ffn);
}

TEST(RowModel, SizesInANameAreTheModel) {
  std::vector<std::string> assumptions;
  const auto named =
      row_model("GRUG MoE d5120 L48 e256 top8 i1280 + shared 2560 dense 8192", "", assumptions);
  ASSERT_TRUE(named);
  const auto a = models::Architecture::parse(JsonNode::from_json(*named, ""));
  EXPECT_EQ(a.hidden, 5120);
  EXPECT_EQ(a.layers, 48);
  EXPECT_EQ(a.experts, 256);
  EXPECT_EQ(a.topk, 8);
  EXPECT_EQ(a.expert_ffn, 1280);
  EXPECT_EQ(a.shared_ffn, 2560);
  EXPECT_EQ(a.dense_ffn, 8192);
  EXPECT_EQ(a.dense_layers, 1);
  EXPECT_EQ(a.attention.heads * a.attention.head_dim, a.hidden);
  EXPECT_EQ(assumptions.size(), 1u);  // heads and vocabulary are not in the name
  EXPECT_FALSE(row_model("GRUG MoE d5120 L48 e256", "", assumptions));
}

TEST(RowModel, TheWidthOfAnExpertFollowsFromBothCounts) {
  std::vector<std::string> assumptions;
  const std::string name =
      "GRUG-like MoE d5120 L48 e128 top4 (about 250B total, 15.95B active) + shared 5120";
  const auto named = row_model(name, "", assumptions);
  ASSERT_TRUE(named);
  const auto a = models::Architecture::parse(JsonNode::from_json(*named, ""));
  EXPECT_NEAR(static_cast<double>(a.parameters()), 250e9, 5e9);
  EXPECT_NEAR(static_cast<double>(a.active_parameters()), 15.95e9, 0.32e9);
  EXPECT_EQ(assumptions.size(), 2u);
  // Counts that no width meets, and one alone.
  EXPECT_FALSE(row_model("MoE d5120 L48 e128 top4 (250B total, 80B active)", "", assumptions));
  EXPECT_FALSE(row_model("MoE d5120 L48 e128 top4 (15.95B active)", "", assumptions));
}

TEST(RowModel, ACutSaysItsLayers) {
  EXPECT_EQ(model("DeepSeek-V3 style MoE cut to 12 layers").layers, 12);
  EXPECT_EQ(model("DeepSeek-V3 style MoE cut to 12 layers").experts, 256);
  EXPECT_EQ(model("DeepSeek-V3 cut to some layers").layers, 0);
}

TEST(RowModel, MegaScalesTableHasNoSharedExpertsAndNoDenseLayers) {
  const auto here = model("DeepSeekMoE-16B"), there = model("DeepSeekMoE-16B", "arXiv 2505.11432 table 3");
  EXPECT_GT(here.shared_ffn, 0);
  EXPECT_GT(here.dense_layers, 0);
  EXPECT_EQ(there.shared_ffn, 0);
  EXPECT_EQ(there.dense_layers, 0);
  EXPECT_EQ(there.experts, here.experts);
  EXPECT_NEAR(static_cast<double>(model("Internal-352B (60 layers)", "arXiv 2505.11432").parameters()), 352e9,
              2e9);
}

TEST(RowModel, WordsAfterANameThatChangeTheModelAreTaken) {
  EXPECT_EQ(model("DeepSeekV3").mtp_layers, 1);
  EXPECT_EQ(model("DeepSeekV3 without MTP").mtp_layers, 0);
}

}  // namespace
}  // namespace moesim::calibration
