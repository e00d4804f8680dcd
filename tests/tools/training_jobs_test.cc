// Training jobs of other frameworks in the place of a scenario file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "process.h"
#include "refusal.h"
#include "tests/message_of.h"
#include "tools/moesim/read/job_file.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using nlohmann::json;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

// A job of 8 GPUs, with sizes from an argument of the script and an unknown vocabulary.
constexpr const char* kScript =
    "#!/bin/bash\n"
    "EP=$1\n"
    "MODEL_ARGS=(\n  --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --swiglu\n"
    "  --normalization RMSNorm --disable-bias-linear --num-experts 8 --moe-ffn-hidden-size 2048 --bf16\n)\n"
    "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py ${MODEL_ARGS[@]} --expert-model-parallel-size "
    "$EP \\\n"
    "  --micro-batch-size 1 --global-batch-size 16 --seq-length 1024 --moe-token-dispatcher-type alltoall "
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
