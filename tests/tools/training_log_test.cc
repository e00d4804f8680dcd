#include "tools/moesim/read/training_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "process.h"
#include "tests/message_of.h"
#include "tools/moesim/read/job_file.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

std::string sample(const char* name) {
  return (std::filesystem::path(MOESIM_SOURCE_DIR) / "tests/fuzz/corpus/training_log" / name).string();
}

TEST(TrainingLog, ReadsStepsBehindPrefixesAndColours) {
  const TrainingLog megatron = read_training_log(
      "node-1:  iteration 1/ 5 | elapsed time per iteration (ms): 76015.3 | x\nother\n"
      "iteration 2/5 | elapsed time per iteration (ms): 1500 |",
      "a.log");
  EXPECT_THAT(megatron.steps, ElementsAre(::testing::DoubleEq(76.0153), ::testing::DoubleEq(1.5)));
  EXPECT_FALSE(megatron.arguments);
  const TrainingLog titan = read_training_log(
      "\x1b[31mstep:  1  \x1b[32mloss: 8.1  \x1b[34mtps: 12,345  mfu: 2%\x1b[39m\n", "b.log");
  EXPECT_THAT(titan.steps, ElementsAre(12345));
}

// An event file: records of an Event with its version, then of a step's scalars, simple or in a tensor.
std::string record(std::string_view event) {
  std::string size(8, '\0');
  size[0] = static_cast<char>(event.size());
  return size + "crc1" + std::string(event) + "crc2";
}
std::string scalar(char step, const std::string& tag, bool tensor, const char* le_float) {
  const std::string real(le_float, 4);
  std::string value = std::string("\x0a") + static_cast<char>(tag.size()) + tag;
  value += tensor ? "\x42\x06\x2a\x04" + real : "\x15" + real;
  value = std::string("\x0a") + static_cast<char>(value.size()) + value;
  return record(std::string("\x10") + step + "\x2a" + static_cast<char>(value.size()) + value);
}

TEST(TrainingLog, ReadsEventFilesOfTensorBoard) {
  constexpr const char *kOneAndAHalf = "\0\0\xc0\x3f", *kTwo = "\0\0\0\x40";
  const std::string head = record(
                        "\x1a\x0d"
                        "brain.Event:2"),
                    loss = scalar(1, "lm loss", false, kTwo);
  const std::string whole = head + scalar(1, "iteration-time", false, kOneAndAHalf) + loss +
                            scalar(2, "iteration-time", true, kTwo);
  ASSERT_TRUE(has_steps(whole));
  EXPECT_THAT(read_training_log(whole, "events").steps, ElementsAre(1.5, 2.0));
  const TrainingLog cut = read_training_log(whole.substr(0, whole.size() - 3), "events");
  EXPECT_THAT(cut.steps, ElementsAre(1.5));
  EXPECT_THAT(cut.notes, ElementsAre(HasSubstr("ends inside a record")));
  EXPECT_EQ(message_of([&] { read_training_log(head + record("\xff\xff"), "events"); }),
            "events: found a record 2 that is no Event, expected an event file of TensorBoard");
  EXPECT_THAT(message_of([&] { read_training_log(head + loss, "events"); }), HasSubstr("no steps"));
}

TEST(TrainingLog, ReadsTheArgumentsOfMegatronsDump) {
  const TrainingLog log = read_training_log(read_file(sample("megatron.log")), "m.log");
  ASSERT_TRUE(log.arguments);
  EXPECT_EQ(log.arguments->gpus.count, 16);
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
  EXPECT_THAT(log.steps, ElementsAre(1.0, 0.9));
  EXPECT_EQ(log.global_batch, 8);
  EXPECT_TRUE(log.notes.empty());
}

TEST(TrainingLog, TheLastOfSeveralRunsIsTaken) {
  const TrainingLog log = read_training_log(
      step(10, 1000, 8) + step(11, 1000, 8) + step(12, 1000, 8) + step(1, 9000, 288) + step(2, 9000, 288),
      "a.log");
  EXPECT_THAT(log.steps, ElementsAre(9.0, 9.0));
  EXPECT_EQ(log.global_batch, 288);
  EXPECT_EQ(log.batch_place.line, 5);
  EXPECT_THAT(log.notes, ElementsAre(HasSubstr("2 runs; the last is taken, from line 4 on, without the 3")));
}

TEST(TrainingLog, StepsOfABatchThatGrowsAreLeftOut) {
  const TrainingLog log =
      read_training_log(step(1, 100, 16) + step(2, 200, 32) + step(3, 300, 64) + step(4, 300, 64), "a.log");
  EXPECT_THAT(log.steps, ElementsAre(0.3, 0.3));
  EXPECT_THAT(log.notes, ElementsAre(HasSubstr("2 steps of another global batch than the last, 64")));
}

// Every framework prints its steps in its own words and unit.
TEST(TrainingLog, OtherFrameworksStepsAreRead) {
  using Unit = TrainingLog::Unit;
  struct Printed {
    const char* text;
    Unit unit;
    double value;
  };
  const Printed all[] = {
      {"Step Time : 2.5s GPU utilization: 240.1MODEL_TFLOP/s/GPU\n", Unit::kSeconds, 2.5},
      {"global_step: 12 | train_step_timing in s: 2.5 | loss 3\n", Unit::kSeconds, 2.5},
      {"completed step: 7, seconds: 2.5, TFLOP/s/device: 300.1, loss: 3.1\n", Unit::kSeconds, 2.5},
      {"epoch=0/micro_step=8/global_step=8, RunningAvgSamplesPerSec=3, CurrSamplesPerSec=4.5\n",
       Unit::kSamplesPerSecond, 4.5},
      {"{\"step\": 4, \"loss\": 2.1, \"throughput(tps)\": 812.5}\n", Unit::kTokensPerSecondAndGpu, 812.5},
      {"{\"step\": 4, \"tps_per_gpu\": 812.5, \"tps\": 6500}\n", Unit::kTokensPerSecondAndGpu, 812.5},
      {"\"Step\",\"run - iteration-time\",\"run - iteration-time__MIN\"\n\"1\",\"2.5\",\"2.4\"\n",
       Unit::kSeconds, 2.5}};
  for (const Printed& one : all) {
    EXPECT_TRUE(has_steps(one.text)) << one.text;
    const TrainingLog log = read_training_log(one.text, "x.log");
    EXPECT_EQ(log.unit, one.unit) << one.text;
    EXPECT_THAT(log.steps, ElementsAre(one.value)) << one.text;
  }
  EXPECT_FALSE(has_steps("op,gpu,nodes\nall_reduce,H100,1\n"));
}

TEST(TrainingLog, RefusesWhatHasNoSteps) {
  EXPECT_THROW(read_training_log("nothing\n", "a.log"), InputError);
  EXPECT_THROW(read_training_log("step: 1 tps: 3\nelapsed time per iteration (ms): 4\n", "a.log"),
               InputError);
}

TEST(TrainingLog, AForeignLogOfTwoRunsIsItsLast) {
  const std::filesystem::path log = std::filesystem::path(MOESIM_DATA_DIR) / "foreign/third/min/two_runs.log";
  if (!std::filesystem::exists(log)) GTEST_SKIP() << "no " << log;
  const TrainingLog read = read_training_log(read_file(log.string()), "two_runs.log");
  EXPECT_THAT(read.steps, ElementsAre(9.0, 9.0, 9.0));
  EXPECT_EQ(read.global_batch, 288);
}

// Scripts that are run for their arguments.

TEST(RunningJobs, EndAtALimit) {
  const TempFolder folder;
  folder.write("run.sh", "sleep 60\n");
  EXPECT_THAT(message_of([&] { read_job_by_running(folder / "run.sh", {}, 0.3); }),
              HasSubstr("still runs after 0.3 s"))
      << "it ran";
}

TEST(RunningJobs, NeedBash) {
  const TempFolder folder;
  folder.write("run.sh", "true\n");
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(::setenv("PATH", folder.path().c_str(), 1), 0);
  EXPECT_THROW(read_job_by_running(folder / "run.sh", {}), InputError);
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace moesim::tools
