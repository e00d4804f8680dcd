// `moesim validate --decisions`: measured decisions between dispatchers against forecast ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::parsed;
using testing::run_moesim;
using testing::TempFolder;

constexpr const char* kHeader =
    "gpu,gpus,gpus_per_node,model,framework,dispatcher,precision,gbs,mbs,seq_len,tp,pp,cp,ep,etp,step_time_s,"
    "source,backend,overlap,recompute,cuda_graphs,comm_sms,decision_id\n";

std::string row(const std::string& seconds, const std::string& backend, const std::string& id,
                const std::string& model = "olmoe") {
  return "H100-SXM5-80GB,8,8," + model + ",Megatron-Core,,BF16,64,1,4096,1,1,1,8,1," + seconds + ",here," +
         backend + ",none,none,none,," + id + "\n";
}

TEST(ValidateDecisions, RowsOfOneIdAreOneDecisionAndRegretIsOfTheMeasuredTimes) {
  TempFolder folder;
  // Two arms, measured in both orders: any forecast is right in one of them.
  folder.write("d.csv", std::string("# a comment\n") + kHeader + row("6", "nccl", "a") +
                            row("7.5", "nccl", "b") + row("9", "deepep", "a") + row("5", "deepep", "b") +
                            row("1", "nccl", ""));
  const json r = parsed({"validate", "--decisions", "d.csv"}, folder.path());
  ASSERT_EQ(r["decisions"].size(), 2u);
  const json &a = r["decisions"][0], &b = r["decisions"][1];
  EXPECT_EQ(a["id"], "a");
  EXPECT_EQ(a["measured_winner"], "alltoall");
  EXPECT_NEAR(a["measured_margin"].get<double>(), 0.5, 1e-12);
  EXPECT_EQ(b["measured_winner"], "flex-deepep");
  EXPECT_EQ(a["forecast_winner"], b["forecast_winner"]);
  EXPECT_EQ(a["probability"], b["probability"]);
  const bool first = a["forecast_winner"] == "alltoall";
  EXPECT_NEAR(a["regret"].get<double>(), first ? 0 : 0.5, 1e-12);
  EXPECT_NEAR(b["regret"].get<double>(), first ? 0.5 : 0, 1e-12);
  EXPECT_EQ(a["recommended"], a["forecast_winner"]);
  EXPECT_EQ(a["loss"], a["regret"]);
  EXPECT_EQ(a["verdict"], b["verdict"]);
  EXPECT_THAT(a["verdict"].get<std::string>(), ::testing::AnyOf("clear", "safe", "open"));
  EXPECT_EQ(a["said_loss_at_most"], b["said_loss_at_most"]);
  const bool answered = a["verdict"] != "open";
  EXPECT_EQ(r["answered_share"], answered ? 1 : 0);
  EXPECT_EQ(r["fastest_share"], 0.5);
  EXPECT_EQ(r["bound_held_share"], 0.5);  // 0.5 is beyond what any such forecast says
  EXPECT_NEAR(r["mean_loss"].get<double>(), 0.25, 1e-12);
  EXPECT_EQ(r["abstained_share"], answered ? 0 : 1);
  if (answered) {
    EXPECT_EQ(r["right_share"], 0.5);
    EXPECT_NEAR(r["mean_regret"].get<double>(), 0.25, 1e-12);
    EXPECT_NEAR(r["worst_regret"].get<double>(), 0.5, 1e-12);
  }
  EXPECT_NEAR(r["mean_regret_of_all"].get<double>(), 0.25, 1e-12);
  ASSERT_EQ(r["probability_bins"].size(), 1u);
  EXPECT_EQ(r["probability_bins"][0]["count"], 2);
  EXPECT_EQ(r["probability_bins"][0]["right"], 0.5);
  // The ratio of the two fastest as they were measured, of the same draws.
  const json &x = a["forecast_ratio"], &y = b["forecast_ratio"];
  EXPECT_NEAR(x["value"].get<double>() * y["value"].get<double>(), 1, 1e-9);
}

TEST(ValidateDecisions, SaysWhichArmsItLeavesOutAndWhy) {
  TempFolder folder;
  folder.write("d.csv", kHeader + row("6", "nccl", "a") + row("7", "deepep", "a") +
                            row("5", "magic", "a", "?") + row("6", "nccl", "alone") +
                            row("5", "deepep", "alone", "Some 7B"));
  const json r = parsed({"validate", "--decisions", "d.csv", "--draws", "4"}, folder.path());
  ASSERT_EQ(r["decisions"].size(), 1u);
  ASSERT_EQ(r["decisions"][0]["left_out"].size(), 1u);
  EXPECT_THAT(r["decisions"][0]["left_out"][0].get<std::string>(), HasSubstr("magic"));
  std::string reasons;
  for (const json& s : r["skipped"])
    reasons += s["id"].get<std::string>() + ":" + s["reason"].get<std::string>();
  EXPECT_THAT(reasons, HasSubstr("alone:model 'Some 7B'"));
  EXPECT_THAT(reasons, HasSubstr("alone:the only arm of its decision"));
}

TEST(ValidateDecisions, ReadsTheRunAsTheTableHasIt) {
  TempFolder folder;
  std::string full = row("6", "deepep", "a");
  full.replace(full.find("none,none,none,,"), 16, "none,full,none,8,");
  folder.write("d.csv", kHeader + row("6", "deepep", "a") + full);
  const json r = parsed({"validate", "--decisions", "d.csv", "--draws", "0"}, folder.path());
  const json& arms = r["decisions"][0]["arms"];
  EXPECT_EQ(arms[0]["dispatcher"], "flex-deepep");
  EXPECT_EQ(arms[1]["dispatcher"], "flex-deepep:sms=8");
  // Everything is computed once more, but not the optimizer's part.
  const double ratio =
      arms[1]["forecast_us"]["value"].get<double>() / arms[0]["forecast_us"]["value"].get<double>();
  EXPECT_GT(ratio, 1.15);
  EXPECT_LT(ratio, 1.6);
}

TEST(ValidateDecisions, ReadsModelsBySizesInTheirNames) {
  TempFolder folder;
  const std::string sizes = "Own MoE d2048 L4 e16 top2 i1024 + shared 2048";
  folder.write("d.csv", kHeader + row("1", "nccl", "a", sizes) + row("2", "deepep", "a", sizes));
  const json r = parsed({"validate", "--decisions", "d.csv", "--draws", "0"}, folder.path());
  EXPECT_THAT(r["decisions"][0]["arms"][0]["assumptions"].dump(), HasSubstr("16 heads of 128 with 4"));
}

TEST(ValidateDecisions, RefusesWhatIsNoTableOfDecisions) {
  TempFolder folder;
  folder.write("training.csv", "gpu,gpus,model,precision,gbs\nH100-SXM5-80GB,8,olmoe,BF16,64\n");
  folder.write("one.csv", kHeader + row("6", "nccl", "a"));
  folder.write("two.csv", kHeader + row("6", "nccl", "a") + row("7", "deepep", "a"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"training.csv"}, "training.csv:1: found no column 'decision_id'"},
      {{"one.csv"}, "found no decision of which two rows can be forecast"},
      {{"two.csv", "--detail", "breakdown"}, "--detail beside --decisions"},
      {{"two.csv", "--training", "two.csv"}, "--training"},
      {{"two.csv", "--timeline", "t.json"}, "--timeline beside --decisions"}};
  for (const auto& [words, expected] : cases) {
    std::vector<std::string> all{"validate", "--decisions"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = run_moesim(all, folder.path());
    EXPECT_EQ(outcome.exit_code, 2) << expected;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

// In two tables, of which no row set a constant: the same with and without its publication.
TEST(ValidateDecisions, TakesSeveralTablesAndLeavesPublicationsOut) {
  TempFolder folder;
  folder.write("a.csv", kHeader + row("6", "nccl", "a") + row("7", "deepep", "a"));
  folder.write("b.csv", kHeader + row("5", "nccl", "b") + row("9", "deepep", "b"));
  const std::vector<std::string> both{"validate", "--decisions", "a.csv", "b.csv", "--draws", "0"};
  std::vector<std::string> without = both;
  without.insert(without.end(), {"--leave-out", "source"});
  const json seen = parsed(both, folder.path()), left_out = parsed(without, folder.path());
  ASSERT_EQ(seen["decisions"].size(), 2u);
  EXPECT_EQ(left_out["decisions"], seen["decisions"]);
  EXPECT_TRUE(left_out["left_out"].is_array());
  EXPECT_FALSE(seen.contains("left_out"));
  const Outcome alone = run_moesim({"validate", "--leave-out", "source"}, folder.path());
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--leave-out without --training or --decisions"));
}

class Decisions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) GTEST_SKIP() << "no measured decisions at " << folder_;
  }
  fs::path folder_ = fs::path(MOESIM_DATA_DIR) / "decisions";
};

TEST_F(Decisions, TablesAreReadAsTheyAre) {
  const std::map<std::string, std::size_t> decisions{
      {"aws_training_decisions.csv", 7}, {"moe_layer_decisions.csv", 12}, {"training_decisions.csv", 6}};
  for (const auto& [file, least] : decisions) {
    const json r = parsed({"validate", "--decisions", (folder_ / file).string(), "--draws", "4"});
    EXPECT_GE(r["decisions"].size(), least) << file;
    for (const json& one : r["decisions"]) EXPECT_GE(one["arms"].size(), 2u) << one["id"];
  }
}

}  // namespace
}  // namespace moesim::tools
