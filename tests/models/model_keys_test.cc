#include "models/workload/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

JsonNode config(const std::string& text) { return JsonNode::parse(text, "config.json"); }

TEST(ModelKeys, AKeyOfAnotherModelIsNamedWithItsLine) {
  try {
    refuse_other_models(config("{\"hidden_size\": 8,\n \"time_mix_extra_dim\": 64}"), "");
    FAIL() << "it was taken";
  } catch (const InputError& error) {
    EXPECT_EQ(error.place().line, 2);
    EXPECT_THAT(error.what(), HasSubstr("time_mix_extra_dim"));
    EXPECT_THAT(error.what(), HasSubstr("RWKV"));
  }
}

TEST(ModelKeys, AKeyThatSaysNothingChangesNothing) {
  for (const char* value : {"null", "false", "0", "[]", "{}", "\"\""})
    EXPECT_NO_THROW(refuse_other_models(config("{\"use_cla\": " + std::string(value) + "}"), "")) << value;
}

TEST(ModelKeys, OnlyWhatNobodyKnowsIsNamed) {
  const KeyUse known =
      key_use(config(R"({"hidden_size": 8, "rope_theta": 10000.0, "eos_token_id": 1})"), "", {"hidden_size"});
  EXPECT_THAT(known.unknown, ::testing::IsEmpty());
  EXPECT_THAT(known.irrelevant, ::testing::ElementsAre("rope_theta", "eos_token_id"));
  const KeyUse nothing = key_use(config(R"({"odd": null, "odder": []})"), "", {});
  EXPECT_THAT(nothing.unknown, ::testing::IsEmpty());
  EXPECT_THAT(nothing.irrelevant, ::testing::IsEmpty());
  const KeyUse odd =
      key_use(config(R"({"hidden_size": 8, "odd": "a name", "odder": 0.5})"), "", {"hidden_size"});
  EXPECT_THAT(odd.unknown, ::testing::ElementsAre("odd", "odder"));
}

TEST(ModelKeys, AnUnreadKeyThatMayBringWeightsIsRefusedWhateverItsName) {
  for (const char* value : {"4", "1", "true", "[1, 2]", "{\"a\": 1}"})
    for (const char* key : {"odd", "linear_num_groups", "kda_rank", "swa_num_sinks"}) {
      const std::string text = std::string("{\"") + key + "\": " + value + "}";
      EXPECT_THAT(moesim::testing::message_of([&] { key_use(config(text), "", {}); }), HasSubstr(key))
          << text;
      EXPECT_NO_THROW(key_use(config(text), "", {key})) << text;
    }
}

TEST(ModelKeys, AKeyIsNeutralInItsFamilyAlone) {
  const auto use = [](const std::string& family) {
    return key_use(config(R"({"moe_capacity": [64, 64]})"), family, {});
  };
  EXPECT_THAT(use("ernie4_5_moe").irrelevant, ::testing::Contains("moe_capacity"));
  EXPECT_THAT(moesim::testing::message_of([&] { use("mixtral"); }), HasSubstr("moe_capacity"));
}

TEST(ModelKeys, AFamilyThatNoKeyTellsIsRefused) {
  EXPECT_THAT(moesim::testing::message_of(
                  [&] { refuse_other_models(config(R"({"model_type": "jetmoe"})"), "jetmoe"); }),
              HasSubstr("experts in its attention"));
}

}  // namespace
}  // namespace moesim::models
