// moesim replay and validate through the command line: what can be changed about a recording, what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::sample_folder;

std::vector<std::string> replay(const char* side, std::vector<std::string> more) {
  std::vector<std::string> arguments{"replay", (sample_folder() / side).string(), "--quiet", "--draws", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json replayed(const char* side, std::vector<std::string> more) {
  more.insert(more.end(), {"--format", "json"});
  const Outcome outcome = run_moesim(replay(side, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? json::parse(outcome.out) : json::object();
}

TEST(Replay, AnotherDispatcherInBothKindsOfRecordings) {
  for (const char* side : {"scaling", "realistic"}) {
    const json recorded = replayed(side, {});
    const json same = replayed(side, {"--dispatcher", "alltoall-legacy"});
    const json other = replayed(side, {"--dispatcher", "allgather-legacy"});
    const auto us = [](const json& result) { return result.at("iteration_us").at("value").get<double>(); };
    EXPECT_NEAR(us(same) / us(recorded), 1, 1e-6) << side;
    EXPECT_NE(us(other), us(recorded)) << side;
    EXPECT_THAT(other.at("because").get<std::string>(), HasSubstr("against the recorded dispatcher")) << side;
    EXPECT_THAT(other.at("changes").get<std::string>(),
                HasSubstr("allgather-legacy instead of alltoall-legacy"));
  }
}

TEST(Replay, SharesOfTheIterationAddUp) {
  for (const char* side : {"scaling", "realistic"}) {
    const json result = replayed(side, {});
    double sum = 0;
    for (const auto& [cause, us] : result.at("attribution").at("shares_us").items()) sum += us.get<double>();
    EXPECT_NEAR(sum, result.at("iteration_us").at("value").get<double>(), 1) << side;
    EXPECT_FALSE(result.at("attribution").at("rule").get<std::string>().empty());
  }
}

TEST(Replay, OtherSizesShowInTheTopology) {
  EXPECT_THAT(replayed("scaling", {"--pp", "4"}).at("topology").get<std::string>(), HasSubstr("pp4"));
  EXPECT_THAT(replayed("scaling", {"--nodes", "4"}).at("topology").get<std::string>(), HasSubstr("dp16"));
  EXPECT_THAT(replayed("scaling", {"--ep", "2"}).at("topology").get<std::string>(), HasSubstr("ep2"));
  EXPECT_THAT(replayed("scaling", {"--seq", "2048"}).at("changes").get<std::string>(),
              HasSubstr("sequences of 2048 instead of 1024"));
}

TEST(Replay, WhatCannotBeDerivedIsRefusedInOneLine) {
  struct Case {
    const char* side;
    std::vector<std::string> more;
    const char* reason;
  };
  const std::vector<Case> cases{
      {"scaling", {"--ep", "3"}, "ep 3 with dp 8"},
      {"scaling", {"--pp", "3"}, "a pp that divides the layers"},
      {"scaling", {"--experts", "6"}, "6 experts"},
      {"scaling", {"--dispatcher", "allgathr"}, "allgather"},
      {"scaling", {"--dispatcher", "torchtitan-local"}, "torchtitan-local"},
      {"scaling", {"--routing", "measured"}, "replay has one recording only"},
      {"scaling", {"--cluster", "echo-h800x1", "--seq", "2048"}, "at most the 8 GPUs"},
      {"realistic", {"--seq", "2048"}, "a scaling recording"},
      {"realistic", {"--microbatches", "4"}, "a scaling recording"},
  };
  for (const Case& one : cases) {
    const Outcome outcome = run_moesim(replay(one.side, one.more));
    EXPECT_EQ(outcome.exit_code, 2) << one.reason;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(one.reason));
    EXPECT_TRUE(outcome.out.empty());
  }
}

TEST(Validate, OneJobFromAnothersRecording) {
  const std::string scaling = (sample_folder() / "scaling").string();
  const std::string real = (sample_folder() / "realistic").string();
  const Outcome same = run_moesim({"validate", "--forecast", scaling, "--measured", real, "--rescale",
                                   "--routing", "measured", "--draws", "0", "--max-error", "5%", "--quiet"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const Outcome other = run_moesim(
      {"validate", "--forecast", scaling, "--measured", real, "--ep", "2", "--draws", "0", "--quiet"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--rescale"));
}

}  // namespace
}  // namespace moesim::tools
