// Models written as JSON: a name where nothing was changed, else an object that reads back.
#include "models/workload/model_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/architecture.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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

}  // namespace
}  // namespace moesim::models
