// One question: every way of asking gives the same scenario.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "process.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/verbs/serve_questions.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

// Mixtral 8x7B on four nodes of eight GPUs.
constexpr const char* kScript = R"(#!/bin/bash
GPUS_PER_NODE=8; NNODES=4
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 32768 \
  --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 32000 --bf16 \
  --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-permute-fusion --moe-token-dispatcher-type alltoall \
  --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --sequence-parallel \
  --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 256
)";

class OneQuestion : public ::testing::Test {
 protected:
  OneQuestion() { folder_.write("train.sh", kScript); }

  json result(Words words) {
    words.insert(words.end(), {"--format", "json", "--quiet"});
    const Outcome outcome = run_moesim(words, folder_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  static double time_of(const json& dispatchers, const std::string& name) {
    for (const json& one : dispatchers)
      if (one["dispatcher"] == name) return one["time_us"]["value"];
    ADD_FAILURE() << "no " << name;
    return 0;
  }

  TempFolder folder_;
};

std::map<std::string, json> settings_of(const json& result) {
  std::map<std::string, json> settings;
  for (const json& one : result["inputs"]["settings"]) settings[one["path"]] = one;
  return settings;
}

TEST_F(OneQuestion, AssumedSettingsThatMatterAreSaid) {
  const json r = result({"compare", "train.sh", "--draws", "0"});
  bool launch = false;
  for (const json& one : r["assumed"]) {
    EXPECT_GT(std::abs(one["effect"].get<double>()), 0.05) << one;
    launch = launch || one["path"] == "training.launch";
    // The effect is what asking says.
    if (one["path"] != "training.launch") continue;
    const json other =
        result({"compare", "train.sh", "--launch", one["alternative"].get<std::string>(), "--draws", "0"});
    const std::string winner = r["winner"]["dispatcher"];
    EXPECT_NEAR(time_of(other["scenarios"], winner) / time_of(r["scenarios"], winner) - 1,
                one["effect"].get<double>(), 0.01);
  }
  EXPECT_EQ(settings_of(r).contains("training.launch"), false);
  // Given settings are not assumed.
  for (const json& one : result({"compare", "train.sh", "--launch", "eager", "--draws", "0"})["assumed"])
    EXPECT_NE(one["path"], "training.launch");
}

TEST_F(OneQuestion, APlansCommandAsksAboutThatPlan) {
  folder_.write("m20.json", R"({"base": "mixtral-8x7b", "layers": 16, "name": "m20"})");
  const json planned = result({"plan", "--model", "m20.json", "--tokens", "100B", "--clusters", "h100",
                               "--gpus", "16", "--draws", "0", "--most", "60", "--no-upgrades"});
  const json& plan = planned["plans"][0];
  folder_.write("again.sh", plan["command"].get<std::string>() + " --draws 0 --format json --quiet");
  EXPECT_THAT(plan["command"].get<std::string>(), HasSubstr("m20.json"));
  // Split as a shell would.
  const Outcome words =
      run_moesim({"plan", "--model", "m20.json", "--tokens", "100B", "--clusters", "h100", "--gpus", "16",
                  "--draws", "0", "--most", "60", "--no-upgrades", "--quiet"},
                 folder_.path());
  std::istringstream lines(words.out);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("moesim compare")) inside = true;
    if (inside && line.find("--") != std::string::npos && !line.ends_with("\\")) inside = false;
    EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_FALSE(inside) << "every line but the last ends in a backslash";
}

// The page posts what is said of the question as JSON; the answer is the command line's.
TEST_F(OneQuestion, ThePageAsksWhatTheCommandLineAsks) {
  const json page = json::parse(
      answer_question(kAnswerQuestion, R"({"model": "mixtral-8x7b", "cluster": "dgx-h100x4", "draws": 0})"));
  const json typed =
      result({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--draws", "0"});
  EXPECT_EQ(page["inputs"]["scenario"], typed["inputs"]["scenario"]);
  EXPECT_EQ(page["scenarios"], typed["scenarios"]);
}

// So does a run that was measured, and what is accepted to be lost; a run that is not explained has no
// answer.
TEST_F(OneQuestion, ThePageAnchorsAsTheCommandLineDoes) {
  const auto page = [](const std::string& measured) {
    return answer_question(kAnswerQuestion,
                           R"({"model": "qwen3-30b-a3b", "cluster": "dgx-h100x4", "parallel": {"ep": 8}, )"
                           R"("dispatcher": "allgather,alltoall", "tolerance": "5%", "measured": ")" +
                               measured + "\"}");
  };
  const json asked = json::parse(page("alltoall=12ms"));
  const json typed =
      result({"compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4", "--ep", "8", "--dispatcher",
              "allgather,alltoall", "--tolerance", "5%", "--measured", "alltoall=12ms"});
  for (const char* key : {"scenarios", "recommendation", "anchor", "answer"})
    EXPECT_EQ(asked[key], typed[key]) << key;
  EXPECT_EQ(asked["recommendation"]["tolerance"], 0.05);
  const json lost = json::parse(page("alltoall=1s"));
  EXPECT_EQ(lost["anchor"]["explained"], false);
  EXPECT_FALSE(lost.contains("recommendation"));
  EXPECT_THROW(page("soon"), InputError);
  EXPECT_THROW(answer_question(kAnswerQuestion, R"({"model": "mixtral-8x7b", "tolerance": 2})"), InputError);
}

TEST(CommandText, IsReadyToPaste) {
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("--seq"), "--seq");
  EXPECT_EQ(command_text({"moesim", "compare", "--model", "{\"a\": 1}", "--seq", "8"}, 36),
            "moesim compare --model '{\"a\": 1}' \\\n  --seq 8\n");
}

}  // namespace
}  // namespace moesim::tools
