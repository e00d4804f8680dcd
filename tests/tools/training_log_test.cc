#include "tools/moesim/read/training_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "process.h"
#include "refusal.h"
#include "tests/message_of.h"
#include "tools/moesim/read/job_file.h"

namespace moesim::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;
using moesim::testing::message_of;
using nlohmann::json;
using testing::expect_refusal;
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
  EXPECT_THAT(read.steps, ElementsAre(9.0, 9.0, 9.0));
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

// Training jobs of other frameworks in the place of a scenario file.

// A job of 8 GPUs, with sizes from an argument of the script and an unknown vocabulary.
constexpr const char* kScript =
    "#!/bin/bash\n"
    "EP=$1\n"
    "MODEL_ARGS=(\n  --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --swiglu\n"
    "  --normalization RMSNorm --disable-bias-linear --num-experts 8 --moe-ffn-hidden-size 2048 --bf16\n)\n"
    "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py ${MODEL_ARGS[@]} --expert-model-parallel-size "
    "$EP \\\n"
    "  --micro-batch-size 1 --global-batch-size 16 --seq-length 1024 --max-position-embeddings 1024 --moe-token-dispatcher-type alltoall "
    "\\\n"
    "  --moe-permute-fusion --moe-grouped-gemm --lr 1e-4 --data-path $DATA --use-distributed-optimizer "
    "--odd-one\n";

class TrainingJobs : public ::testing::Test {
 protected:
  TrainingJobs() { folder_.write("train.sh", kScript); }
  std::string script() const { return (folder_.path() / "train.sh").string(); }
  Words with(Words words) const {
    for (const char* more : {"--with", "1=8", "--with", "--vocab-size 32000"}) words.emplace_back(more);
    return words;
  }
  TempFolder folder_;
};

TEST_F(TrainingJobs, BecomeScenariosThatGiveTheSameAnswer) {
  const Outcome scenario = run_moesim(with({"scenario", "from", "megatron", script()}));
  ASSERT_EQ(scenario.exit_code, 0) << scenario.err;
  EXPECT_THAT(scenario.err, HasSubstr("not understood, and not used: --odd-one"));
  const json made = json::parse(scenario.out);
  EXPECT_EQ(made["parallel"]["dp"], 8);
  EXPECT_EQ(made["parallel"]["microbatches"], 2);
  EXPECT_EQ(made["parallel"]["ep"], 8);
  folder_.write("job.json", scenario.out);
  const Outcome direct = run_moesim(with({"compare", script(), "--draws", "2", "--format", "json"}));
  const Outcome file =
      run_moesim({"compare", (folder_.path() / "job.json").string(), "--draws", "2", "--format", "json"});
  ASSERT_EQ(direct.exit_code, 0) << direct.err;
  ASSERT_EQ(file.exit_code, 0) << file.err;
  const json a = json::parse(direct.out), b = json::parse(file.out);
  EXPECT_EQ(a["scenarios"], b["scenarios"]);
  EXPECT_THAT(a["warnings"].dump(), HasSubstr("--odd-one"));
  EXPECT_EQ(a["model"]["name"], "train");
}

TEST_F(TrainingJobs, AreWrittenAsArgumentsAgain) {
  const Outcome out = run_moesim(with({"scenario", "to", "megatron", script()}));
  ASSERT_EQ(out.exit_code, 0) << out.err;
  EXPECT_EQ(out.err.find("not among"), std::string::npos) << out.err;
  EXPECT_THAT(out.out, HasSubstr("--expert-model-parallel-size 8 \\\n"));
  folder_.write("again.args", out.out);
  const Outcome again =
      run_moesim({"scenario", "to", "megatron", (folder_.path() / "again.args").string(), "--dp", "8"});
  EXPECT_EQ(again.out, out.out) << again.err;
  const Outcome winner = run_moesim(with({"compare", script(), "--dispatcher", "alltoall,flex-deepep",
                                          "--draws", "0", "--arguments", "megatron"}));
  ASSERT_EQ(winner.exit_code, 0) << winner.err;
  EXPECT_THAT(winner.out, HasSubstr("arguments of megatron:"));
  EXPECT_THAT(winner.out, HasSubstr("--moe-token-dispatcher-type"));
  const Outcome best =
      run_moesim(with({"whatif", script(), "--best", "dispatcher", "--draws", "0", "--arguments", "nemo"}));
  ASSERT_EQ(best.exit_code, 0) << best.err;
  EXPECT_THAT(best.out, HasSubstr("expert_model_parallel_size: 8\n"));
}

TEST_F(TrainingJobs, ScriptsAreRunWhereThatIsSaid) {
  const std::string job =
      " --num-layers 2 --hidden-size 256 --num-attention-heads 4 --vocab-size 1024 --bf16 "
      "--global-batch-size 32 --seq-length ";
  const auto script = [&](const std::string& text) {
    folder_.write("run.sh", text);
    return run_moesim(
        {"scenario", "from", "megatron", folder_ / "run.sh", "--by-running", "--with", "N=128"});
  };
  const auto seq = [&](const std::string& text) {
    const Outcome out = script(text);
    EXPECT_EQ(out.exit_code, 0) << text << out.err;
    return out.exit_code == 0 ? json::parse(out.out)["parallel"]["seq"].get<int>() : 0;
  };
  const std::string torchrun = "torchrun --nproc_per_node 8 pretrain_gpt.py" + job;
  EXPECT_EQ(seq("S=$(expr $N + 0)\n" + torchrun + "$S 2>&1 | tee /dev/null\n"), 128);
  EXPECT_EQ(seq("PATH=/usr/bin:/bin\nexec " + torchrun + "64\n"), 64);
  EXPECT_EQ(
      seq("sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=8\nsrun bash -c \"python "
          "train.py" +
          job + "32\"\nEOF\n"),
      32);
  EXPECT_EQ(seq("srun -N 1 --ntasks-per-node 8 python train.py" + job + "16 &\nwait\n"), 16);
  EXPECT_THAT(script("python -c 'print(1)'\n" + torchrun + "8\n").err, HasSubstr("not run"));
  // The launchers do nothing, and what the script itself does is not shown.
  EXPECT_EQ(script("echo noise; " + torchrun + "8\n").out.find("noise"), std::string::npos);
}

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

// A description that leans on another file says so, by the key.
TEST_F(TrainingJobs, AForeignDescriptionIsRefusedByItsKey) {
  const std::filesystem::path file =
      std::filesystem::path(MOESIM_DATA_DIR) / "foreign/other/primus_mixtral_8x7B.yaml";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  expect_refusal(run_moesim({"scenario", "from", "megatron", file.string()}), HasSubstr("extends"));
}

}  // namespace
}  // namespace moesim::tools
