// Parameter counts of an architecture by hand, and which layers hold experts.
#include "models/workload/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/layer_stack.h"
#include "models/workload/model_config.h"
#include "models/workload/model_json.h"
#include "models/workload/model_names.h"
#include "models/workload/model_summary.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

// H 64: queries 4*16, keys and values 2*16 each, the projection back.
TEST(Attention, GroupedParametersByHand) {
  Attention a = testing::small_model().attention;
  EXPECT_EQ(a.parameters(64), 64 * (64 + 2 * 32) + 64 * 64);
  a.qkv_bias = a.output_bias = a.qk_norm = a.sinks = true;
  EXPECT_EQ(a.parameters(64), 64 * 128 + 64 * 64 + (64 + 2 * 32) + 64 + 2 * 16 + 4);
}

// MLA: down and up for queries with a norm between, the same for keys and values with a shared rotary part.
TEST(Attention, LatentParametersByHand) {
  Attention a;
  a.kind = Attention::Kind::kLatent;
  a.heads = 4;
  a.q_rank = 24;
  a.kv_rank = 16;
  a.nope_dim = 8;
  a.rope_dim = 4;
  a.value_dim = 8;
  const std::int64_t queries = 64 * 24 + 24 + 24 * 4 * (8 + 4),
                     rest = 64 * (16 + 4) + 16 + 16 * 4 * (8 + 8) + 4 * 8 * 64;
  EXPECT_EQ(a.parameters(64), queries + rest);
  a.q_rank = 0;  // projected directly
  EXPECT_EQ(a.parameters(64), 64 * 4 * (8 + 4) + rest);
  EXPECT_EQ(a.score_dim(), 12);
  EXPECT_EQ(a.output_dim(), 8);
}

TEST(Architecture, ParametersByHand) {
  Architecture a = testing::small_model();
  const std::int64_t attention = 64 * 128 + 64 * 64, norms = 2 * 64, expert = 3 * 64 * 32;
  const std::int64_t without = 2 * 128 * 64 + 64 + 4 * (attention + norms) + 3 * 64 * 96 + 3 * 64 * 8;
  EXPECT_EQ(a.parameters_per_expert(), expert);
  EXPECT_EQ(a.parameters(), without + 3 * 8 * expert);
  EXPECT_EQ(a.active_parameters(), without + 3 * 2 * expert);
  a.tied_embeddings = true;
  a.gated = false;
  a.shared_ffn = 32;
  EXPECT_EQ(a.parameters(), without - 128 * 64 - 64 * 96 + 3 * (8 * 2 + 2) * 64 * 32);
  // Rows of another width meet the experts, behind and before a projection.
  a.latent = 16;
  EXPECT_EQ(a.parameters_per_expert(), 2 * 16 * 32);
}

TEST(Architecture, ExpertsAreInEverySoManythLayerBehindTheDenseOnes) {
  Architecture a = testing::small_model();
  a.layers = 8;
  a.dense_layers = 1;
  a.moe_every = 2;
  std::vector<std::int64_t> moe;
  for (std::int64_t layer = 0; layer < 8; ++layer)
    if (a.is_moe_layer(layer)) moe.push_back(layer);
  EXPECT_EQ(moe, (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(a.moe_layers(), 3);
}

RC_GTEST_PROP(Architecture, MoeLayersAreThoseThatAre, ()) {
  Architecture a = testing::small_model();
  a.layers = *rc::gen::inRange(1, 40);
  a.dense_layers = *rc::gen::inRange<std::int64_t>(0, a.layers + 1);
  a.moe_every = *rc::gen::inRange(1, 6);
  a.experts = *rc::gen::element<std::int64_t>(0, 8);
  std::int64_t counted = 0;
  for (std::int64_t layer = 0; layer < a.layers; ++layer) counted += a.is_moe_layer(layer) ? 1 : 0;
  RC_ASSERT(a.moe_layers() == counted);
}

// Requirements on every size for programs to be built from it.
TEST(BuiltInArchitectures, HaveNamesOfTheirOwnAndWholeSizes) {
  std::set<std::string> names;
  for (const Architecture& a : builtin_architectures()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name;
    EXPECT_GT(a.hidden * a.layers * a.vocabulary, 0) << a.name;
    EXPECT_GT(a.attention.heads, 0) << a.name;
    if (a.attention.kind == Attention::Kind::kGrouped) {
      EXPECT_EQ(a.attention.heads % a.attention.kv_heads, 0) << a.name;
    }
    if (a.experts > 0) {
      EXPECT_LE(a.topk, a.experts) << a.name;
      EXPECT_EQ(a.experts % a.routing_groups, 0) << a.name;
      EXPECT_GT(a.moe_layers(), 0) << a.name;
      EXPECT_LT(a.active_parameters(), a.parameters()) << a.name;
    }
    if (a.pattern.empty() && a.moe_layers() < a.layers) {
      EXPECT_GT(a.dense_ffn, 0) << a.name;
    }
    if (!a.pattern.empty()) {
      EXPECT_EQ(a.layers, static_cast<std::int64_t>(a.pattern.size())) << a.name;
    }
  }
}

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
    for (const char* name : {"DeepSeek-V3.2", "Kimi K2.5", "Qwen3.5-27B", "DeepSeek-V4.1 Flash", "GLM-5.3"})
      EXPECT_EQ(model_called(name, match), std::nullopt) << name;
}

// Totals and active ones of their cards, without vision and layers of prediction.
TEST(ModelAliases, ModelsByNameHaveTheParametersOfTheirCards) {
  const struct {
    const char* name;
    double total, active;
  } kCards[] = {{"Qwen3.5-35B-A3B", 34.7e9, 3.5e9},    {"Qwen3.6-35B-A3B", 34.7e9, 3.5e9},
                {"Qwen3-Next-80B-A3B", 79.7e9, 3.9e9}, {"GLM-4.5-Air", 106.9e9, 12.2e9},
                {"GLM-4.6", 352.8e9, 32.1e9},          {"Qwen1.5-MoE-A2.7B", 14.3e9, 2.7e9}};
  for (const auto& card : kCards) {
    const Architecture a = Architecture::load(card.name);
    EXPECT_NEAR(static_cast<double>(a.parameters()), card.total, 0.005 * card.total) << card.name;
    EXPECT_NEAR(static_cast<double>(a.active_parameters()), card.active, 0.03 * card.active) << card.name;
  }
}

// A shortened model is the beginning of the whole one, dense and hybrid ones, too.
TEST(ModelAliases, ModelsAreShortened) {
  for (const char* name : {"qwen3.5-35b-a3b", "llama-3-8b"}) {
    Architecture a = Architecture::load(name);
    const std::string mixers = a.mixers.substr(0, 8);
    change_model(a, "layers", JsonNode::from_json(8, ""));
    EXPECT_EQ(a.layers, 8);
    EXPECT_EQ(a.mixers, mixers);
    EXPECT_THROW(change_model(a, "layers", JsonNode::from_json(0, "")), InputError);
  }
}

TEST(ModelAliases, DenseModelsHaveTheParametersOfTheirCards) {
  EXPECT_EQ(Architecture::load("Llama 3.1 70B").name, "llama-3-70b");
  EXPECT_EQ(Architecture::load("qwen2.5-7b").name, "qwen2.5-7b");     // a dense model, and beside it
  EXPECT_EQ(Architecture::load("Qwen2-57B").name, "qwen2-57b-a14b");  // the same letters, other numbers
  EXPECT_NEAR(static_cast<double>(Architecture::load("qwen3-32b").parameters()), 32.8e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(Architecture::load("qwen3-0.6b").parameters()), 0.6e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(Architecture::load("llama-2-70b").parameters()), 69.0e9, 0.1e9);
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

// Models written as JSON: a name where nothing was changed, else an object that reads back.

TEST(ModelJson, EveryBuiltInModelIsANameAndReadsBackFromItsObject) {
  for (const std::string& name : Architecture::names()) {
    const Architecture a = Architecture::load(name);
    EXPECT_EQ(to_json(a), ordered_json(name));
    const Architecture b = Architecture::parse(JsonNode::from_json(json(model_object(a)), "test"));
    EXPECT_EQ(model_object(a), model_object(b)) << name;
    EXPECT_EQ(a.parameters(), b.parameters()) << name;
    EXPECT_EQ(a.active_parameters(), b.active_parameters()) << name;
    Architecture changed = a;
    ++changed.shared_ffn;
    EXPECT_TRUE(to_json(changed).is_object()) << name;
  }
}

TEST(ModelJson, AModelOfNobodysReadsBackFromItsObject) {
  Architecture a = testing::small_model();
  a.latent = 16;
  a.mamba = {4, 16, 8, 2, 4};
  a.pattern = "ME*-";
  a.attention.window = 32;
  const ordered_json written = to_json(a);
  ASSERT_TRUE(written.is_object());
  const Architecture b = Architecture::parse(JsonNode::from_json(json(written), "test"));
  EXPECT_EQ(to_json(b), written);
  EXPECT_EQ(b.parameters(), a.parameters());
}

ModelConfig config(const std::string& text, const std::string& family = "") {
  return ModelConfig(JsonNode::parse(text, "config.json"), family);
}

TEST(ModelKeys, AKeyOfAnotherModelIsNamedWithItsLine) {
  try {
    refuse_other_models(config("{\"hidden_size\": 8,\n \"time_mix_extra_dim\": 64}"));
    FAIL() << "it was taken";
  } catch (const InputError& error) {
    EXPECT_EQ(error.place().line, 2);
    EXPECT_THAT(error.what(), HasSubstr("time_mix_extra_dim"));
    EXPECT_THAT(error.what(), HasSubstr("RWKV"));
  }
}

TEST(ModelKeys, AKeyThatSaysNothingChangesNothing) {
  for (const char* value : {"null", "false", "0", "[]", "{}", "\"\""})
    EXPECT_NO_THROW(refuse_other_models(config("{\"use_cla\": " + std::string(value) + "}"))) << value;
}

TEST(ModelKeys, OnlyWhatNobodyKnowsIsNamed) {
  const KeyUse known = key_use(config(R"({"rope_theta": 10000.0, "eos_token_id": 1})"));
  EXPECT_THAT(known.unknown, ::testing::IsEmpty());
  EXPECT_THAT(known.irrelevant, ::testing::ElementsAre("rope_theta", "eos_token_id"));
  const KeyUse nothing = key_use(config(R"({"odd": null, "odder": []})"));
  EXPECT_THAT(nothing.unknown, ::testing::IsEmpty());
  EXPECT_THAT(nothing.irrelevant, ::testing::IsEmpty());
  const KeyUse odd = key_use(config(R"({"odd": "a name", "odder": 0.5})"));
  EXPECT_THAT(odd.unknown, ::testing::ElementsAre("odd", "odder"));
}

TEST(ModelKeys, AnUnreadKeyThatMayBringWeightsIsRefusedWhateverItsName) {
  for (const char* value : {"4", "1", "true", "[1, 2]", "{\"a\": 1}"})
    for (const char* key : {"odd", "linear_num_groups", "kda_rank", "swa_num_sinks"}) {
      const std::string text = std::string("{\"") + key + "\": " + value + "}";
      EXPECT_THAT(moesim::testing::message_of([&] { key_use(config(text)); }), HasSubstr(key)) << text;
      const ModelConfig read = config(text);
      read.has({key});
      if (std::string(value).front() == '{') continue;  // of an object the parts are checked
      EXPECT_NO_THROW(key_use(read)) << text;
    }
}

TEST(ModelKeys, AKeyIsNeutralInItsFamilyAlone) {
  const auto use = [](const std::string& family) {
    return key_use(config(R"({"moe_capacity": [64, 64]})", family));
  };
  EXPECT_THAT(use("ernie4_5_moe").irrelevant, ::testing::Contains("moe_capacity"));
  EXPECT_THAT(moesim::testing::message_of([&] { use("mixtral"); }), HasSubstr("moe_capacity"));
}

TEST(ModelKeys, AFamilyThatNoKeyTellsIsRefused) {
  EXPECT_THAT(
      moesim::testing::message_of([&] { refuse_other_models(config(R"({"model_type": "jetmoe"})")); }),
      HasSubstr("experts in its attention"));
}

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
