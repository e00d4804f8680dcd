// Where the faults of a machine meet the stages of a pipeline.
#include "models/step/step_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_reader.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using ::testing::ElementsAre;

// 16 GPUs, two stages of eight, two dispatch groups of four in each.
std::vector<std::vector<RankFaults>> found(const std::string& faults, std::vector<std::string>& warnings,
                                           const std::string& cluster = "dgx-h100x2") {
  Scenario s = testing::small_job(cluster);
  s.parallel.pp = 2;
  s.parallel.dp = 8;
  s.give("parallel.dp");
  s.faults = Faults::parse(JsonNode::parse(faults, "faults.json"));
  s.resolve();
  return faults_of_stages(s, warnings);
}

TEST(FaultsOfStages, NothingSlowIsNothing) {
  std::vector<std::string> warnings;
  EXPECT_TRUE(found("{}", warnings).empty());
  EXPECT_TRUE(warnings.empty());
}

TEST(FaultsOfStages, FindTheirStageAndGroup) {
  std::vector<std::string> warnings;
  // GPU 13 is in stage 1 (8 to 15), in its second group (12 to 15), second there.
  const auto stages = found(R"({"slow_gpus": [{"gpu": 13, "factor": 1.5}]})", warnings);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_TRUE(stages[0].empty());
  ASSERT_EQ(stages[1].size(), 1u);
  EXPECT_THAT(stages[1][0].compute, ElementsAre(1, 1.5, 1, 1));
  EXPECT_THAT(stages[1][0].network, ElementsAre(1, 1, 1, 1));
  EXPECT_TRUE(warnings.empty());
  const auto both = found(
      R"({"slow_gpus": [{"gpu": 8, "factor": 2}], "nvlinks": [{"gpu": 15, "bandwidth": 0.5}]})", warnings);
  ASSERT_EQ(both[1].size(), 2u);  // one group each
  EXPECT_THAT(both[1][0].compute, ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(both[1][1].nvlink, ElementsAre(1, 1, 1, 2));
}

// Jitter alone is the same everywhere, one group stands for all; beside a real fault it does not count apart.
TEST(FaultsOfStages, JitterIsOneGroupOfEveryStage) {
  std::vector<std::string> warnings;
  const auto all = found(R"({"jitter": 0.1})", warnings);
  ASSERT_EQ(all.size(), 2u);
  for (const auto& stage : all) {
    ASSERT_EQ(stage.size(), 1u);
    EXPECT_EQ(stage[0].jitter, 0.1);
  }
  const auto both = found(R"({"jitter": 0.1, "slow_gpus": [{"gpu": 13, "factor": 1.5}]})", warnings);
  ASSERT_EQ(both[0].size(), 1u);
  ASSERT_EQ(both[1].size(), 1u);
  EXPECT_THAT(both[1][0].compute, ElementsAre(1, 1.5, 1, 1));
  EXPECT_EQ(both[1][0].jitter, 0.1);
}

TEST(FaultsOfStages, OutsideOfThePlanAreOnlySaid) {
  std::vector<std::string> warnings;
  const auto stages =
      found(R"({"slow_gpus": [{"gpu": 16, "factor": 2}], "nics": [{"gpu": 17, "bandwidth": 0.5}]})", warnings,
            "dgx-h100x4");
  EXPECT_THAT(warnings, ElementsAre("faults: 2 on GPUs that the plan does not use"));
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_TRUE(stages[0].empty());
  EXPECT_TRUE(stages[1].empty());
}

}  // namespace
}  // namespace moesim::models
