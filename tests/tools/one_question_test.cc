// One question: every way of asking gives the same scenario.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
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
using ::testing::Not;
using testing::Outcome;
using testing::read_text;
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

json parallel_of(const json& result) { return result["inputs"]["scenario"]["parallel"]; }

std::map<std::string, json> settings_of(const json& result) {
  std::map<std::string, json> settings;
  for (const json& one : result["inputs"]["settings"]) settings[one["path"]] = one;
  return settings;
}

TEST_F(OneQuestion, AChangeKeepsTheBatchOfAScript) {
  const json compared = result({"compare", "train.sh", "--cluster", "dgx-h100x8", "--draws", "0"});
  EXPECT_EQ(parallel_of(compared)["global_batch"], "256");
  EXPECT_EQ(parallel_of(compared)["dp"], 16);
  EXPECT_EQ(parallel_of(compared)["microbatches"], 16);
  const double time = time_of(compared["scenarios"], "alltoall");

  const json whatif = result({"whatif", "train.sh", "--set", "cluster.nodes=8", "--draws", "0"});
  EXPECT_DOUBLE_EQ(time_of(whatif["change"]["dispatchers"], "alltoall"), time);
  // Four nodes do the same work in more microbatches.
  EXPECT_GT(time_of(whatif["baseline"]["dispatchers"], "alltoall"), 1.2 * time);

  const Outcome sweep = run_moesim({"sweep", "train.sh", "--grid", "cluster.nodes=4,8", "--dispatcher",
                                    "alltoall", "--out", "out.csv", "--quiet"},
                                   folder_.path());
  ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
  std::istringstream rows(read_text(folder_.path() / "out.csv"));
  std::string row;
  for (int i = 0; i < 3; ++i) std::getline(rows, row);
  EXPECT_THAT(row, HasSubstr(fmt::format("{:.3f}", time).substr(0, 8)));
}

TEST_F(OneQuestion, ALargerMicrobatchIsTheSameWork) {
  const json whatif = result({"whatif", "train.sh", "--set", "micro_batch=2", "--draws", "0"});
  const json &before = whatif["baseline"]["dispatchers"][0], &after = whatif["change"]["dispatchers"][0];
  EXPECT_EQ(before["tokens"], after["tokens"]);
  EXPECT_EQ(before["tokens"], 256 * 4096);
}

TEST_F(OneQuestion, SettingWhatIsSoChangesNothing) {
  const json compared = result({"compare", "train.sh", "--draws", "0"});
  const json whatif = result({"whatif", "train.sh", "--set", "parallel.pp=4", "--draws", "0"});
  for (const char* which : {"baseline", "change"})
    EXPECT_DOUBLE_EQ(time_of(whatif[which]["dispatchers"], "alltoall"),
                     time_of(compared["scenarios"], "alltoall"));
}

TEST_F(OneQuestion, OriginsSayWhereASettingComesFrom) {
  const auto settings = settings_of(result(
      {"compare", "train.sh", "--seq", "2k", "--set", "cluster.nic.bandwidth=100GBps", "--draws", "0"}));
  EXPECT_EQ(settings.at("parallel.seq")["value"], 2048);
  EXPECT_EQ(settings.at("parallel.seq")["origin"], (json{{"kind", "said"}, {"where", "--seq"}}));
  EXPECT_EQ(settings.at("cluster.nic.bandwidth")["value"], 100e9);
  EXPECT_EQ(settings.at("cluster.nic.bandwidth")["origin"]["kind"], "said");
  EXPECT_EQ(settings.at("parallel.pp")["origin"]["kind"], "file");
  EXPECT_THAT(settings.at("parallel.pp")["origin"]["where"].get<std::string>(),
              HasSubstr("train.sh:3 --pipeline-model-parallel-size"));
  EXPECT_EQ(settings.at("parallel.global_batch")["origin"]["kind"], "file");
  EXPECT_FALSE(settings.contains("training.launch"));  // its default
}

TEST_F(OneQuestion, TheUsualBatchStandsInForAnUnsaidOne) {
  const json r =
      result({"compare", "--scope", "step", "--model", "deepseek-v3", "--cluster", "h800", "--gpus", "512",
              "--pp", "8", "--ep", "64", "--dispatcher", "alltoall", "--draws", "0"});
  // 15,360 sequences of 4,096 tokens (arXiv 2412.19437, 4.2).
  EXPECT_EQ(parallel_of(r)["global_batch"], "15360");
  EXPECT_EQ(parallel_of(r)["microbatches"], 240);
  EXPECT_EQ(settings_of(r).at("parallel.global_batch")["origin"]["kind"], "model");
  // One microbatch is what is asked for where it is said.
  const json one =
      result({"compare", "--scope", "step", "--model", "deepseek-v3", "--cluster", "h800", "--gpus", "512",
              "--pp", "8", "--ep", "64", "--dispatcher", "alltoall", "--microbatches", "1", "--draws", "0"});
  EXPECT_EQ(parallel_of(one)["microbatches"], 1);
}

TEST_F(OneQuestion, ASearchedPlanIsSearchedAgainForAnotherMachine) {
  const Words base{"--scope", "step", "--model", "qwen3-30b-a3b", "--gpus", "16"};
  const auto asked = [&](const Words& first, const Words& more) {
    Words words = first;
    words.insert(words.end(), base.begin(), base.end());
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--dispatcher", "alltoall", "--draws", "0"});
    return words;
  };
  const json own = result(asked({"compare"}, {"--cluster", "b200"}));
  const json change = result(asked({"whatif"}, {"--cluster", "h100", "--set", "cluster=b200"}));
  EXPECT_DOUBLE_EQ(time_of(change["change"]["dispatchers"], "alltoall"),
                   time_of(own["scenarios"], "alltoall"));
  // A faster port is the same machine for a plan: it stays.
  const json port = result(asked({"whatif"}, {"--cluster", "h100", "--set", "nic.bandwidth=x2"}));
  EXPECT_LE(time_of(port["change"]["dispatchers"], "alltoall"),
            time_of(port["baseline"]["dispatchers"], "alltoall"));
}

TEST_F(OneQuestion, ScriptsAreComparedWithWhatTheyCouldRun) {
  const Outcome text = run_moesim({"compare", "train.sh", "--quiet"}, folder_.path());
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("alltoall (today)"));
  for (const char* name : {"allgather", "flex-deepep"}) EXPECT_THAT(text.out, HasSubstr(name));
  // A dispatcher that is named is the one that is asked about.
  const json named = result({"compare", "train.sh", "--dispatcher", "alltoall", "--draws", "0"});
  EXPECT_EQ(named["scenarios"].size(), 1u);
}

TEST_F(OneQuestion, RacksAreTakenInBlocksThatDivideTheJob) {
  const json r = result({"compare", "--model", "deepseek-v3", "--cluster", "gb200-nvl72x8", "--ep", "32",
                         "--dispatcher", "flex-hybridep", "--draws", "0"});
  EXPECT_EQ(r["inputs"]["scenario"]["cluster"]["gpus_per_node"], 64);
  EXPECT_EQ(parallel_of(r)["dp"], 512);
  EXPECT_THAT(r["warnings"].dump(), HasSubstr("64 of the 72 GPUs of a rack"));
  // Groups that divide 72 take all of a rack.
  const json whole = result({"compare", "--model", "deepseek-v3", "--cluster", "gb200-nvl72x8", "--ep", "8",
                             "--dispatcher", "flex-hybridep", "--draws", "0"});
  EXPECT_EQ(whole["inputs"]["scenario"]["cluster"], "gb200-nvl72x8");
}

TEST_F(OneQuestion, WordsThatPeopleUseAreKnown) {
  const json r = result({"compare", "--model", "mixtral-8x7b", "--cluster", "H200", "--gpus", "8", "--seq",
                         "8k", "--dispatcher", "nccl,flex", "--prices", "h200=2.5", "--draws", "0"});
  EXPECT_EQ(r["inputs"]["scenario"]["parallel"]["seq"], 8192);
  EXPECT_EQ(r["inputs"]["scenario"]["cluster"], "dgx-h200x1");
  EXPECT_EQ(r["scenarios"][0]["dispatcher"], "alltoall");
  EXPECT_EQ(r["scenarios"][1]["dispatcher"], "flex-deepep");
  EXPECT_GT(r["scenarios"][0]["cost"].get<double>(), 0);
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
