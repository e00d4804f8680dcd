#include "tools/moesim/read/training_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "process.h"
#include "refusal.h"

namespace moesim::tools {
namespace {

using ::testing::ElementsAre;
using testing::expect_refusal;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;

std::string sample(const char* name) {
  return (std::filesystem::path(MOESIM_SOURCE_DIR) / "tests/fuzz/corpus/training_log" / name).string();
}

TEST(TrainingLog, ReadsStepsBehindPrefixesAndColours) {
  const TrainingLog megatron = read_training_log(
      "node-1:  iteration 1/ 5 | elapsed time per iteration (ms): 76015.3 | x\nother\n"
      "iteration 2/5 | elapsed time per iteration (ms): 1500 |",
      "a.log");
  EXPECT_THAT(megatron.step_s, ElementsAre(::testing::DoubleEq(76.0153), ::testing::DoubleEq(1.5)));
  EXPECT_FALSE(megatron.arguments);
  const TrainingLog titan = read_training_log(
      "\x1b[31mstep:  1  \x1b[32mloss: 8.1  \x1b[34mtps: 12,345  mfu: 2%\x1b[39m\n", "b.log");
  EXPECT_THAT(titan.tokens_per_s, ElementsAre(12345));
}

TEST(TrainingLog, ReadsTheArgumentsOfMegatronsDump) {
  const TrainingLog log = read_training_log(read_file(sample("megatron.log")), "m.log");
  ASSERT_TRUE(log.arguments);
  EXPECT_EQ(log.arguments->gpus, 16);
  const auto& settings = log.arguments->settings;
  const auto at = std::ranges::find(settings, "seq_length", &Setting::name);
  ASSERT_NE(at, settings.end());
  EXPECT_THAT(at->values, ElementsAre("2048"));
  EXPECT_GT(at->place.line, 2);
  EXPECT_EQ(std::ranges::find(settings, "spec", &Setting::name), settings.end());  // None
}

TEST(TrainingLog, WarmingUpIsLeftOut) {
  EXPECT_EQ(steady({1}).size(), 1U);
  EXPECT_EQ(steady({9, 1, 1}).size(), 2U);
  EXPECT_EQ(steady(std::vector<double>(10, 1)).size(), 8U);
  EXPECT_EQ(steady(std::vector<double>(100, 1)).size(), 90U);
}

std::string step(int iteration, double ms, int batch) {
  return fmt::format(" iteration {}/ 100 | elapsed time per iteration (ms): {} | global batch size: {} |\n",
                     iteration, ms, batch);
}

TEST(TrainingLog, AnIterationOfSeveralRanksCountsOnce) {
  const TrainingLog log =
      read_training_log("0: " + step(1, 1000, 8) + "1: " + step(1, 1001, 8) + "0: " + step(2, 900, 8) +
                            "2: " + step(1, 1002, 8) + "1: " + step(2, 901, 8),
                        "a.log");
  EXPECT_THAT(log.step_s, ElementsAre(1.0, 0.9));
  EXPECT_EQ(log.global_batch, 8);
  EXPECT_TRUE(log.notes.empty());
}

TEST(TrainingLog, TheLastOfSeveralRunsIsTaken) {
  const TrainingLog log = read_training_log(
      step(10, 1000, 8) + step(11, 1000, 8) + step(12, 1000, 8) + step(1, 9000, 288) + step(2, 9000, 288),
      "a.log");
  EXPECT_THAT(log.step_s, ElementsAre(9.0, 9.0));
  EXPECT_EQ(log.global_batch, 288);
  EXPECT_EQ(log.batch_line, 5);
  EXPECT_THAT(log.notes, ElementsAre(HasSubstr("2 runs; the last is taken, from line 4 on, without the 3")));
}

TEST(TrainingLog, StepsOfABatchThatGrowsAreLeftOut) {
  const TrainingLog log =
      read_training_log(step(1, 100, 16) + step(2, 200, 32) + step(3, 300, 64) + step(4, 300, 64), "a.log");
  EXPECT_THAT(log.step_s, ElementsAre(0.3, 0.3));
  EXPECT_THAT(log.notes, ElementsAre(HasSubstr("2 steps of another global batch than the last, 64")));
}

TEST(TrainingLog, RefusesWhatHasNoSteps) {
  EXPECT_THROW(read_training_log("nothing\n", "a.log"), InputError);
  EXPECT_THROW(read_training_log("step: 1 tps: 3\nelapsed time per iteration (ms): 4\n", "a.log"),
               InputError);
}

TEST(ValidateLog, HoldsStepsAgainstTheForecastOfTheSameArguments) {
  const Outcome out = run_moesim({"validate", "--log", sample("megatron.log"), "--cluster", "dgx-h100x2",
                                  "--draws", "4", "--format", "json"});
  ASSERT_EQ(out.exit_code, 0) << out.err;
  const auto result = nlohmann::json::parse(out.out);
  EXPECT_EQ(result["steps"]["logged"], 30);
  EXPECT_EQ(result["steps"]["left_out"], 3);
  EXPECT_NEAR(result["measured_us"]["p50"].get<double>(), 400e3, 4e3);
  EXPECT_NEAR(result["error"].get<double>(),
              result["forecast_us"]["value"].get<double>() / result["measured_us"]["p50"].get<double>() - 1,
              1e-9);
  EXPECT_EQ(result["inputs"]["scenario"]["parallel"]["microbatches"], 4);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("not used: some_new_size"));
  EXPECT_THAT(result["warnings"].dump(), Not(HasSubstr("some_new_switch")));
  EXPECT_THAT(result["warnings"].dump(), Not(HasSubstr("cp_comm_type")));  // ['p2p'], the default
  EXPECT_EQ(run_moesim({"validate", "--log", sample("megatron.log"), "--cluster", "dgx-h100x2", "--draws",
                        "0", "--max-error", "0.1%"})
                .exit_code,
            1);
}

TEST(ValidateLog, TokensASecondAreOfADevice) {
  TempFolder folder;
  folder.write(
      "t.toml",
      "[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
      "[parallelism]\ndata_parallel_shard_degree = 8\ntensor_parallel_degree = 2\nexpert_parallel_degree = "
      "8\n"
      "[activation_checkpoint]\nmode = \"full\"\n");
  const Outcome out = run_moesim({"validate", "--log", sample("torchtitan.log"), "--job", folder / "t.toml",
                                  "--cluster", "dgx-h100x2", "--draws", "0", "--format", "json"});
  ASSERT_EQ(out.exit_code, 0) << out.err;
  // 2 x 4096 tokens of a replica on two devices, at 1,240 tokens a second and device.
  EXPECT_NEAR(nlohmann::json::parse(out.out)["measured_us"]["p50"].get<double>(), 8192 / (1240.5 * 2) * 1e6,
              4e3);
}

// The batch that the log prints is the job's where that says none, and is held against it where it says one.
TEST(ValidateLog, TheLogsBatchIsTheJobs) {
  TempFolder folder;
  const std::string job =
      "torchrun --nproc_per_node 8 p.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 "
      "--seq-length "
      "1024 --vocab-size 32000 --bf16 --micro-batch-size 1 ";
  folder.write("open.sh", job);
  folder.write("said.sh", job + "--global-batch-size 8");
  folder.write("t.log", step(1, 100, 32) + step(2, 100, 32) + step(3, 100, 32));
  const auto validated = [&](const char* name) {
    return run_moesim({"validate", "--log", folder / "t.log", "--job", folder / name, "--cluster",
                       "dgx-h100x1", "--draws", "0", "--format", "json"});
  };
  const Outcome open = validated("open.sh");
  ASSERT_EQ(open.exit_code, 0) << open.err;
  EXPECT_EQ(nlohmann::json::parse(open.out)["inputs"]["scenario"]["parallel"]["microbatches"], 4);
  expect_refusal(validated("said.sh"),
                 HasSubstr("t.log:3: found a global batch of 32 sequences, expected the job's 8"));
}

TEST(ValidateLog, AForeignLogOfTwoRunsIsItsLast) {
  const std::filesystem::path log = std::filesystem::path(MOESIM_DATA_DIR) / "foreign/third/min/two_runs.log";
  if (!std::filesystem::exists(log)) GTEST_SKIP() << "no " << log;
  const TrainingLog read = read_training_log(read_file(log.string()), "two_runs.log");
  EXPECT_THAT(read.step_s, ElementsAre(9.0, 9.0, 9.0));
  EXPECT_EQ(read.global_batch, 288);
}

TEST(ValidateLog, AForeignLogIsRefusedByWhatItLacks) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "foreign/other";
  if (!std::filesystem::exists(folder / "ling_v2_train.log")) GTEST_SKIP() << "no " << folder;
  expect_refusal(
      run_moesim({"validate", "--log", (folder / "ling_v2_train.log").string(), "--cluster", "dgx-h100x4"}),
      HasSubstr("--job"));
  expect_refusal(run_moesim({"validate", "--log", (folder / "megatron_deepspeed.log").string(), "--cluster",
                             "dgx-a100x2"}),
                 HasSubstr("found deepspeed True"));
}

}  // namespace
}  // namespace moesim::tools
