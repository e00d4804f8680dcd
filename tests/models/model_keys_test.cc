#include "models/workload/model_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

JsonNode config(const std::string& text) { return JsonNode::parse(text, "config.json"); }

TEST(ModelKeys, AKeyOfAnotherModelIsNamedWithItsLine) {
  try {
    refuse_other_models(config("{\"hidden_size\": 8,\n \"linear_attn_config\": {\"heads\": 2}}"));
    FAIL() << "it was taken";
  } catch (const InputError& error) {
    EXPECT_EQ(error.place().line, 2);
    EXPECT_THAT(error.what(), HasSubstr("linear_attn_config"));
    EXPECT_THAT(error.what(), HasSubstr("linear attention"));
  }
}

TEST(ModelKeys, AKeyThatSaysNothingChangesNothing) {
  for (const char* value : {"null", "false", "0", "[]", "{}", "\"\""})
    EXPECT_NO_THROW(refuse_other_models(config("{\"index_topk\": " + std::string(value) + "}"))) << value;
}

TEST(ModelKeys, OnlyWhatNobodyKnowsIsNamed) {
  EXPECT_EQ(unknown_keys(config(R"({"hidden_size": 8, "rope_theta": 10000.0, "eos_token_id": 1})")), "");
  EXPECT_EQ(unknown_keys(config(R"({"odd": null, "odder": []})")), "");
  const std::string said = unknown_keys(config(R"({"hidden_size": 8, "odd": 3, "odder": [1]})"));
  EXPECT_THAT(said, HasSubstr("config.json"));
  EXPECT_THAT(said, HasSubstr("odd, odder"));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("hidden_size")));
}

}  // namespace
}  // namespace moesim::models
