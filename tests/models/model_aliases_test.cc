#include "models/workload/model_names.h"

#include <gtest/gtest.h>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {
namespace {

TEST(ModelAliases, PeopleSpellNamesInManyWays) {
  for (const char* name : {"DeepSeek-V3", "deepseek_v3 671B", "DeepSeekV3"})
    EXPECT_EQ(Architecture::load(name).name, "deepseek-v3") << name;
  EXPECT_EQ(Architecture::load("Qwen3-30B-A3B").name, "qwen3-30b-a3b");
  EXPECT_EQ(model_called("DeepSeek-V3-16B"), "deepseek-v2-lite");  // torchtitan's test size
  EXPECT_EQ(Architecture::load("Nemotron_3_Ultra").name, "nemotron-3-ultra");
  EXPECT_EQ(model_called("a model of nobody"), std::nullopt);
}

TEST(ModelAliases, RemarksMayFollowInATableAndNothingOnTheCommandLine) {
  EXPECT_EQ(model_called("DeepSeekV3 (presumed)", NameMatch::kRemark), "deepseek-v3");
  EXPECT_EQ(model_called("Nemotron 3 Super 120B (26.02)", NameMatch::kRemark), "nemotron-3-super");
  EXPECT_THROW(Architecture::load("DeepSeekV3 (presumed)"), InputError);
}

TEST(ModelAliases, ALaterModelIsAnotherModel) {
  for (const NameMatch match : {NameMatch::kWhole, NameMatch::kRemark})
    for (const char* name :
         {"DeepSeek-V3.2", "Kimi K2.5", "Qwen3.5-35B-A3B", "DeepSeek-V4.1 Flash", "GLM-5.3"})
      EXPECT_EQ(model_called(name, match), std::nullopt) << name;
}

TEST(ModelAliases, DenseModelsHaveTheParametersOfTheirCards) {
  const Architecture a = Architecture::load("Llama-3 70B");
  EXPECT_EQ(a.experts, 0);
  EXPECT_NEAR(static_cast<double>(a.parameters()), 70.6e9, 0.1e9);
  EXPECT_EQ(a.layers, 80);
  EXPECT_NEAR(static_cast<double>(Architecture::load("llama3 405b").parameters()), 405.9e9, 0.5e9);
}

TEST(ModelAliases, ACutOfAModelHasNoLayersOfPredictionUnlessTheyAreSaid) {
  const auto model = [](const char* text) { return Architecture::parse(JsonNode::parse(text, "m.json")); };
  EXPECT_EQ(model(R"({"base": "deepseek-v3"})").mtp_layers, 1);
  EXPECT_EQ(model(R"({"base": "deepseek-v3", "layers": 61})").mtp_layers, 1);
  EXPECT_EQ(model(R"({"base": "deepseek-v3", "layers": 4, "dense_layers": 1})").mtp_layers, 0);
  EXPECT_EQ(model(R"({"base": "deepseek-v3", "layers": 4, "mtp_layers": 1})").mtp_layers, 1);
}

}  // namespace
}  // namespace moesim::models
