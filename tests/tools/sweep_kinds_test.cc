// Sweeps over recordings and of plans: their rows are what `replay` and `plan` say, and all that sweeps can
// (threads, resuming, parts, records) holds for them, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/study/sweep_kind.h"
#include "tools/moesim/study/sweep_table.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using ::testing::StartsWith;
using testing::TempFolder;
using Words = std::vector<std::string>;

const std::string kSample =
    std::string(MOESIM_SOURCE_DIR) + "/traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/";

class SweepKinds : public ::testing::Test {
 protected:
  SweepKinds() {
    // Two recordings whose folders are short to write.
    fs::create_directory(folder_.path() / "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024");
    fs::copy(kSample, folder_.path() / "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024",
             fs::copy_options::recursive);
    fs::copy(kSample + "scaling", folder_.path() / (recording_ + "scaling1"));
  }
  Outcome run(Words words, const Words& more = {}) const {
    words.insert(words.end(), more.begin(), more.end());
    return run_moesim(words, folder_.path());
  }
  std::string text(const std::string& name) const { return read_text(folder_.path() / name); }
  static std::vector<nlohmann::json> rows(const std::string& lines) {
    std::vector<nlohmann::json> all;
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', at), lines.size());
      all.push_back(nlohmann::json::parse(lines.substr(at, end - at)));
      at = end + 1;
    }
    return all;
  }

  const std::string recording_ = "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/";
  const Words replays_{"sweep",
                       "replay",
                       recording_ + "scaling",
                       recording_ + "scaling1",
                       "--grid",
                       "cluster=echo-h800x2,dgx-h100x2",
                       "--grid",
                       "dispatcher=as-recorded,allgather"};
  TempFolder folder_;
};

TEST_F(SweepKinds, ARowIsWhatReplaySays) {
  const Outcome swept = run({"sweep", "replay", recording_ + "scaling", "--grid", "microbatches=4,8",
                             "--grid", "dispatcher=as-recorded,allgather", "--cluster", "dgx-h100x2",
                             "--draws", "4", "--prices", R"({"gpu_hour": 2.5})", "--format", "json"});
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  const auto all = rows(swept.out);
  ASSERT_EQ(all.size(), 4u);
  for (const auto& row : all) {
    const Outcome one = run({"replay", recording_ + "scaling", "--cluster", "dgx-h100x2", "--draws", "4",
                             "--prices", R"({"gpu_hour": 2.5})", "--microbatches", row["microbatches"].dump(),
                             "--dispatcher", row["dispatcher"].get<std::string>(), "--format", "json"});
    ASSERT_EQ(one.exit_code, 0) << one.err;
    const auto expected = nlohmann::json::parse(one.out);
    EXPECT_EQ(row["recording"], recording_ + "scaling");
    EXPECT_EQ(row["machine"], "dgx-h100x2");
    EXPECT_EQ(row["topology"], expected["topology"]);
    for (const char* end : {"value", "low", "high"})
      EXPECT_NEAR(row[std::string("iteration_us.") + end].get<double>(),
                  expected["iteration_us"][end].get<double>(), 1e-3);
    EXPECT_NEAR(row["tokens_per_s"].get<double>(), expected["tokens_per_s"].get<double>(), 1e-2);
    EXPECT_NEAR(row["tokens_per_s_per_gpu"].get<double>() * 16, row["tokens_per_s"].get<double>(), 0.1);
    EXPECT_NEAR(row["cost_per_million_tokens"].get<double>(),
                expected["cost_per_million_tokens"]["value"].get<double>(), 1e-8);
    double wait = 0;
    for (const auto& rank : expected["ranks"]) wait += rank["straggler_wait_us"].get<double>() / 16;
    EXPECT_NEAR(row["straggler_wait_us.mean"].get<double>(), wait, 1e-2);
    EXPECT_EQ(row["synthetic"], expected["synthetic"]);
    EXPECT_THAT(row["notes"].get<std::string>(), HasSubstr("SYNTHETIC"));
  }
}

TEST_F(SweepKinds, RecordingsGiveTheSameBytesOnThreadsInPartsAndResumed) {
  ASSERT_EQ(run(replays_, {"--out", "one.csv", "--threads", "1"}).exit_code, 0);
  const std::string whole = text("one.csv");
  EXPECT_THAT(whole, StartsWith("scenario,recording,cluster,dispatcher,topology,"));
  ASSERT_EQ(run(replays_, {"--out", "four.csv", "--threads", "4"}).exit_code, 0);
  EXPECT_EQ(text("four.csv"), whole);
  Words merge{"sweep", "merge", "--out", "all.csv"};
  for (int i = 0; i < 3; ++i) {
    const std::string part = "p" + std::to_string(i) + ".csv";
    ASSERT_EQ(run(replays_, {"--out", part, "--shard", std::to_string(i) + "/3"}).exit_code, 0);
    merge.push_back(part);
  }
  ASSERT_EQ(run(merge).exit_code, 0);
  EXPECT_EQ(text("all.csv"), whole);
  const Outcome again = run({"rerun", "one.csv.json"});
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;

  // --strict ends at a row without a forecast; what is before it stays and is gone on with.
  Words strict = replays_;
  strict.insert(strict.begin() + 4, "missing");
  fs::create_directory(folder_.path() / "missing");
  const Outcome ended = run(strict, {"--out", "r.csv", "--strict"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("scenario 8: missing: found a folder without rank files"));
  EXPECT_EQ(text("r.csv.partial").substr(0, 400), whole.substr(0, 400));
  const Outcome resumed = run(strict, {"--out", "r.csv", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(text("r.csv").starts_with(whole.substr(0, whole.find("\n4,"))));
}

// The record names every file of every recording, and rows of other files are not gone on with.
TEST_F(SweepKinds, AChangedRecordingIsAnotherSweep) {
  ASSERT_EQ(run(replays_, {"--out", "r.csv"}).exit_code, 0);
  const auto record = nlohmann::json::parse(text("r.csv.json"));
  EXPECT_EQ(record["definition"]["files"].size(), 2u * 16);
  EXPECT_EQ(record["rows"]["scenarios"], 8);
  fs::rename(folder_.path() / "r.csv", folder_.path() / "r.csv.partial");
  folder_.write("r.csv.partial.json", record["definition"].dump(2) + "\n");
  folder_.write("r.csv.partial.sums", "");
  std::ofstream(folder_.path() / recording_ / "scaling/rank00.txt", std::ios::app) << "\n";
  const Outcome other = run(replays_, {"--out", "r.csv", "--resume"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("rows of another sweep"));
  const Outcome again = run({"rerun", "r.csv.json"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.out, HasSubstr("rank00.txt is another file"));
}

TEST_F(SweepKinds, ARowIsThePlanThatPlanFinds) {
  const Words few{"--most", "20", "--draws", "4", "--deadline", "300d"};
  Words sweep{"sweep",  "plan",    "--model", "mixtral-8x7b", "--grid",   "cluster=h100,h200",
              "--grid", "gpus=64", "--grid",  "tokens=1T,2T", "--format", "json"};
  const Outcome swept = run(sweep, few);
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  const auto all = rows(swept.out);
  ASSERT_EQ(all.size(), 4u);
  for (const auto& row : all) {
    Words plan{"plan", "--model",  "mixtral-8x7b", "--cluster",     row["cluster"], "--gpus",
               "64",   "--tokens", row["tokens"],  "--no-upgrades", "--format",     "json"};
    const Outcome one = run(plan, few);
    ASSERT_EQ(one.exit_code, 0) << one.err;
    const auto best = nlohmann::json::parse(one.out)["plans"][0];
    for (const char* key : {"cluster", "gpus", "dispatcher", "schedule", "command", "meets"})
      EXPECT_EQ(row[std::string("plan.") + key], best[key]) << key;
    for (const char* key : {"tp", "pp", "ep", "dp"})
      EXPECT_EQ(row[std::string("plan.") + key], best["parallel"][key]) << key;
    EXPECT_DOUBLE_EQ(row["plan.days"].get<double>(), best["days"]["value"].get<double>());
    EXPECT_DOUBLE_EQ(row["plan.cost.high"].get<double>(), best["cost"]["high"].get<double>());
  }
  // Twice the tokens cost twice as much.
  EXPECT_NEAR(all[1]["plan.cost"].get<double>() / all[0]["plan.cost"].get<double>(), 2, 1e-6);
}

TEST(SweepTable, AnAxisCalledLikeAFoundColumnStandsInIt) {
  const std::vector<ScenarioPath> axes{{"a", models::FieldType::kInteger, ""},
                                       {"b", models::FieldType::kInteger, ""}};
  const SweepTable csv(RowFormat::kCsv, axes, {{"x"}, {"b"}});
  EXPECT_EQ(csv.header(), "scenario,a,x,b,error\n");
  std::string rows;
  csv.write_error(rows, 7, {{1, "1", 1}, {2, "2", 2}}, "no, not that");
  EXPECT_EQ(rows, "7,1,,2,\"no, not that\"\n");
  const SweepTable json(RowFormat::kJsonLines, axes, {{"x"}, {"b"}});
  rows.clear();
  json.write_error(rows, 7, {{1, "1", 1}, {"two", "two", 0}}, "none");
  EXPECT_EQ(rows, "{\"scenario\":7,\"a\":1,\"b\":\"two\",\"error\":\"none\"}\n");
}

}  // namespace
}  // namespace moesim::tools
