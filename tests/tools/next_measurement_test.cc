// An answer that is too close to call says what to measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using testing::parsed;

// In the first case the 48 draws of an answer suffice, in the second they tell nothing of any measurement.
TEST(NextMeasurement, IsNamedWhereTheChoiceIsOpen) {
  for (const char* cluster : {"hgx-h20x2", "dgx-a100x2"}) {
    const json answer = parsed({
        "compare",
        "--model",
        "qwen3-30b-a3b",
        "--cluster",
        cluster,
        "--ep",
        "16",
        "--dispatcher",
        "allgather,alltoall",
        "--tolerance",
        "1%",
    });
    ASSERT_EQ(answer["winner"]["verdict"], "too_close") << cluster;
    ASSERT_EQ(answer["recommendation"]["verdict"], "open") << cluster;
    EXPECT_EQ(answer["recommendation"]["settle"], answer["winner"]["measure_next"]);
    EXPECT_THAT(
        answer["winner"]["measure_next"].get<std::string>(),
        ::testing::ContainsRegex("_perf -b |moesim calibrate measure |time it with .* in your framework"))
        << cluster;
  }
}

TEST(NextMeasurement, IsNotNamedWhereNoDrawSaysWhoWins) {
  const json answer =
      parsed({"compare", "--model", "qwen3-30b-a3b", "--cluster", "hgx-h20x2", "--ep", "16", "--draws", "0"});
  EXPECT_TRUE(answer["winner"].at("measure_next").is_null());
}

}  // namespace
}  // namespace moesim::tools
