// --measured, --log and --tolerance, from the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::parsed;
using testing::read_text;
using testing::run_moesim;
using ::testing::StartsWith;
using testing::TempFolder;

const std::vector<std::string> kStep{"--model", "olmoe", "--cluster", "dgx-h100x2",
                                     "--ep",    "8",     "--scope",   "step"};

std::vector<std::string> asked(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), kStep.begin(), kStep.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

double forecast_of(const std::string& dispatcher) {
  return parsed(asked({"compare"}, {"--dispatcher", dispatcher}))["scenarios"][0]["time_us"]["value"];
}

std::string seconds(double us) { return std::to_string(us * 1e-6) + "s"; }

TEST(Anchoring, TheSameRunSaysTheSameInEveryVerb) {
  const std::string run = "alltoall=" + seconds(1.15 * forecast_of("alltoall"));
  const json compared = parsed(asked({"compare"}, {"--dispatcher", "allgather,alltoall", "--measured", run}));
  EXPECT_TRUE(compared["anchor"]["explained"]);
  EXPECT_EQ(compared["anchor"]["measured"][0]["dispatcher"], "alltoall");
  const json whatif = parsed(asked({"whatif"}, {"--dispatcher", "allgather,alltoall", "--measured", run,
                                                "--set", "training.recompute=full"}));
  EXPECT_EQ(whatif["anchor"]["measured"], compared["anchor"]["measured"]);
  for (const std::size_t i : {0u, 1u})
    EXPECT_EQ(whatif["baseline"]["dispatchers"][i]["time_us"], compared["scenarios"][i]["time_us"]);
  const TempFolder folder;
  const Outcome sweep =
      run_moesim(asked({"sweep"}, {"--dispatcher", "allgather,alltoall", "--measured", run, "--grid",
                                   "training.recompute=full", "--out", "o.jsonl"}),
                 folder.path());
  ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
  const std::string rows = read_text(folder.path() / "o.jsonl");
  const json row = json::parse(rows.substr(0, rows.find('\n')));
  EXPECT_NEAR(row["time_us.value"].get<double>() /
                  whatif["change"]["dispatchers"][0]["time_us"]["value"].get<double>(),
              1, 1e-6);
}

TEST(Anchoring, ALogSaysWhatItsStepsTook) {
  TempFolder folder;
  const double s = 1.1e-6 * forecast_of("alltoall");
  std::string log;
  for (int i = 1; i <= 8; ++i)
    log += " iteration " + std::to_string(i) +
           "/ 100 | elapsed time per iteration (ms): " + std::to_string(1e3 * s) +
           " | global batch size: 1024 |\n";
  folder.write("train.log", log);
  const std::vector<std::string> words =
      asked({"compare"}, {"--dispatcher", "alltoall", "--format", "json", "--quiet"});
  std::vector<std::string> by_log = words, by_time = words;
  by_log.insert(by_log.end(), {"--log", "train.log"});
  by_time.insert(by_time.end(), {"--measured", seconds(s * 1e6)});
  const json log_answer = json::parse(run_moesim(by_log, folder.path()).out),
             time_answer = json::parse(run_moesim(by_time, folder.path()).out);
  EXPECT_NEAR(log_answer["anchor"]["measured"][0]["time_us"].get<double>() /
                  time_answer["anchor"]["measured"][0]["time_us"].get<double>(),
              1, 1e-5);
}

// The recording of 16 GPUs says how long its iteration was, and a scaling recording does not.
TEST(Anchoring, ARecordingSaysWhatItsIterationTook) {
  const std::string sample =
      std::string(MOESIM_SOURCE_DIR) + "/traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/";
  const Outcome told = run_moesim(
      asked({"compare"}, {"--dispatcher", "alltoall", "--format", "json", "--log", sample + "realistic"}));
  const json measured = json::parse(told.out)["anchor"]["measured"];
  const json replayed = parsed({"replay", sample + "realistic", "--cluster", "echo-h800x2"});
  EXPECT_NEAR(measured[0]["time_us"].get<double>() / replayed["measured_iteration_us"].get<double>(), 1,
              1e-6);
  const Outcome refused =
      run_moesim(asked({"compare"}, {"--dispatcher", "alltoall", "--log", sample + "scaling"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("a scaling recording"));
}

// A run that no draw explains: what would make it so slow, beside the forecast, and a gate for those who ask.
TEST(Anchoring, ARunThatIsTooSlowIsToldWhy) {
  const std::string run = seconds(20 * forecast_of("alltoall"));
  const std::vector<std::string> words{"--dispatcher", "alltoall", "--measured", run};
  const Outcome told = run_moesim(asked({"compare"}, words));
  EXPECT_EQ(told.exit_code, 0);
  EXPECT_THAT(told.out, AllOf(StartsWith("Your "), HasSubstr("times too slow"), HasSubstr("tell by: ")));
  std::vector<std::string> more = words;
  more.insert(more.end(), {"--no-slower-than", "10%", "--format", "json"});
  const Outcome gated = run_moesim(asked({"compare"}, more));
  EXPECT_EQ(gated.exit_code, 1);
  const json result = json::parse(gated.out);
  EXPECT_FALSE(result["anchor"]["explained"]);
  const json& verdict = result["verdict"];
  EXPECT_FALSE(verdict["normal"]);
  EXPECT_GT(verdict["ratio"], 2);
  for (const json& cause : verdict["causes"]) EXPECT_GT(cause["expected_ratio"], 1) << cause;
  EXPECT_EQ(result["answer"], verdict["sentence"]);
  const TempFolder folder;
  const Outcome sweep = run_moesim(asked({"sweep"}, {"--dispatcher", "alltoall", "--measured", run, "--grid",
                                                     "training.recompute=full", "--out", "o.csv"}),
                                   folder.path());
  EXPECT_EQ(sweep.exit_code, 1);
  EXPECT_THAT(sweep.out, HasSubstr("cannot be explained"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "o.csv"));
}

// A layer that was timed in the framework anchors the steps; where layers are asked about, it is a run of them.
TEST(Anchoring, ALayerIsARunToo) {
  const std::vector<std::string> layers{"compare",   "--model",      "olmoe",
                                        "--cluster", "dgx-h100x2",   "--ep",
                                        "8",         "--dispatcher", "allgather,alltoall"};
  const double us = 1.1 * parsed(layers)["scenarios"][1]["time_us"]["value"].get<double>();
  const std::string run = "layer:alltoall=" + seconds(us);
  const json step = parsed(asked({"compare"}, {"--dispatcher", "allgather,alltoall", "--measured", run}));
  EXPECT_TRUE(step["anchor"]["explained"]);
  EXPECT_EQ(step["anchor"]["measured"][0]["dispatcher"], "alltoall");
  EXPECT_EQ(step["anchor"]["measured"][0]["scope"], "layer");
  const auto measured = [&](const std::string& time) {
    std::vector<std::string> words = layers;
    words.insert(words.end(), {"--measured", time});
    return parsed(words);
  };
  const json layer = measured(run), plain = measured("alltoall=" + seconds(us));
  EXPECT_EQ(layer["scenarios"], plain["scenarios"]);
  EXPECT_FALSE(layer["anchor"]["measured"][0].contains("scope"));
}

TEST(Anchoring, TheToleranceDecidesWhatIsSafe) {
  const auto verdict = [](const char* tolerance) {
    return parsed(asked({"compare"}, {"--dispatcher", "allgather,alltoall,flex-deepep", "--tolerance",
                                      tolerance}))["recommendation"]["verdict"]
        .get<std::string>();
  };
  EXPECT_EQ(verdict("100%") == "open", false);
  const std::string strict = verdict("0%");
  EXPECT_TRUE(strict == "open" || strict == "clear") << strict;
}

}  // namespace
}  // namespace moesim::tools
