#include "models/workload/model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

TEST(ModelSummary, EveryLayerOfEveryBuiltInModelIsCountedOnce) {
  for (const std::string& name : Architecture::names()) {
    const Architecture model = Architecture::load(name);
    std::int64_t sum = 0;
    for (const LayerCount& one : layer_counts(model)) sum += one.count;
    EXPECT_EQ(sum, static_cast<std::int64_t>(layer_stack(model).size())) << name;
    EXPECT_EQ(model_summary(model)["source"], "built-in") << name;
  }
}

// gpt-oss's card: 116.8 B, of which 5.1 B are active.
TEST(ModelSummary, IsOneLineForPeople) {
  EXPECT_THAT(
      model_text(Architecture::load("gpt-oss-120b")),
      HasSubstr("gpt-oss-120b (built-in): 116.8 B parameters, 5.1 B active; layers 18 x windowed attention + "
                "experts, 18 x attention + experts; GQA, 64 heads of 64, 8 of keys and values"));
  EXPECT_THAT(model_text(Architecture::load("deepseek-v3")), HasSubstr("MLA, 128 heads, ranks 1536"));
  EXPECT_THAT(model_text(Architecture::load("mixtral-8x7b")), HasSubstr("8 experts of 14336, top-2"));
}

TEST(ModelSummary, AFilesModelIsCalledAsTheFileAndNamesItsKeys) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "some-model";
  std::filesystem::create_directories(folder);
  const char* text = R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_local_experts": 8, "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "vocab_size": 32000, "rope_theta": 1e6, "an_odd_key": "odd"})";
  for (const char* file : {"config.json", "mine.json"}) std::ofstream(folder / file) << text;
  const auto whole = model_summary(Architecture::load(folder.string()));
  EXPECT_EQ(whole["name"], "some-model");
  EXPECT_EQ(model_summary(Architecture::load((folder / "config.json").string()))["name"], "some-model");
  const auto mine = model_summary(Architecture::load((folder / "mine.json").string()));
  EXPECT_EQ(mine["name"], "mine");
  EXPECT_EQ(mine["source"], (folder / "mine.json").string());
  EXPECT_EQ(mine["ignored_keys"], nlohmann::ordered_json({"rope_theta"}));
  EXPECT_EQ(mine["unknown_keys"], nlohmann::ordered_json({"an_odd_key"}));
  EXPECT_EQ(mine["attention"]["kind"], "GQA");
  EXPECT_EQ(mine["experts"]["topk"], 2);
}

TEST(ModelSummary, AScenariosExpertsPerTokenCount) {
  Scenario s;
  s.set_model("mixtral-8x7b");
  EXPECT_EQ(asked_model(s).topk, 2);
  s.topk = 1;
  EXPECT_EQ(asked_model(s).topk, 1);
  EXPECT_LT(asked_model(s).active_parameters(), s.model.active_parameters());
}

TEST(ModelSummary, ADenseModelHasNoExperts) {
  Architecture dense = Architecture::load("mixtral-8x7b");
  dense.experts = dense.topk = 0;
  dense.dense_ffn = 14336;
  EXPECT_TRUE(model_summary(dense)["experts"].is_null());
  EXPECT_THAT(model_text(dense), HasSubstr("no experts"));
}

}  // namespace
}  // namespace moesim::models
