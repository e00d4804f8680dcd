// What a result says it was made from is all that was read, and no output replaces what it must not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
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
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

// A cluster whose GPU profile lies beside it, and a scenario on it.
void write_job(const TempFolder& folder, double bandwidth = 3.35e12) {
  json profile =
      json::parse(read_text(fs::path(MOESIM_SOURCE_DIR) / "calibration/profiles/gpu/h100-sxm.json"));
  profile["device"]["hbm_bandwidth"] = bandwidth;
  folder.write("gpu.json", profile.dump());
  folder.write("cluster.json", R"({"name": "own", "profile": "gpu.json", "nodes": 2, "gpus_per_node": 8})");
  folder.write("s.json", R"({"model": "olmoe", "cluster": "cluster.json", "parallel": {"ep": 8},
                             "dispatcher": "alltoall"})");
}

Words files_of(const json& result) {
  Words names;
  for (const auto& [name, file] : result.at("inputs").at("files").items()) {
    EXPECT_EQ(file.at("sha256").get<std::string>().size(), 64u);
    names.push_back(fs::path(name).filename().string());
  }
  return names;
}

TEST(FilesRead, NameWhatAClusterFileNames) {
  TempFolder folder;
  write_job(folder);
  EXPECT_THAT(files_of(parsed({"compare", "s.json", "--draws", "0"}, folder.path())),
              ::testing::UnorderedElementsAre("s.json", "cluster.json", "gpu.json"));
  EXPECT_THAT(files_of(parsed({"whatif", "s.json", "--set", "topk=4", "--draws", "0"}, folder.path())),
              ::testing::IsSupersetOf({"s.json", "cluster.json", "gpu.json"}));
}

TEST(FilesRead, NameModelsClustersAndFaultsOfEveryVerb) {
  TempFolder folder;
  write_job(folder);
  folder.write("slow.json", R"({"slow_gpus": [{"gpu": 3, "factor": 1.5}]})");
  EXPECT_THAT(files_of(parsed({"compare", "s.json", "--faults", "slow.json", "--draws", "0"}, folder.path())),
              ::testing::Contains("slow.json"));
  EXPECT_THAT(files_of(parsed({"replay", testing::scaling(), "--cluster", "cluster.json", "--draws", "0"},
                              folder.path())),
              ::testing::IsSupersetOf({"cluster.json", "gpu.json"}));
}

TEST(FilesRead, ASweepDoesNotGoOnAfterAProfileChanged) {
  TempFolder folder;
  write_job(folder);
  const Words sweep{"sweep", "s.json", "--grid", "topk=1,2,4", "--out", "t.csv", "--quiet"};
  ASSERT_EQ(run_moesim(sweep, folder.path()).exit_code, 0);
  // As if it had been killed after two rows.
  std::string rows = read_text(folder.path() / "t.csv");
  const json record = json::parse(read_text(folder.path() / "t.csv.json"));
  EXPECT_THAT(files_of(record), ::testing::IsSupersetOf({"s.json", "cluster.json", "gpu.json"}));
  fs::remove(folder.path() / "t.csv");
  folder.write("t.csv.partial", rows.substr(0, rows.rfind('\n', rows.size() - 2) + 1));
  folder.write(
      "t.csv.partial.json",
      nlohmann::ordered_json::parse(read_text(folder.path() / "t.csv.json")).at("definition").dump(2) + "\n");
  Words again = sweep;
  again.push_back("--resume");
  write_job(folder, 1e12);
  const Outcome changed = run_moesim(again, folder.path());
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_THAT(changed.err, HasSubstr("rows of another sweep"));
  write_job(folder);
  EXPECT_EQ(run_moesim(again, folder.path()).exit_code, 0);
  EXPECT_EQ(read_text(folder.path() / "t.csv"), rows);
}

TEST(FilesRead, ASweepNamesTheFilesOfItsAxes) {
  TempFolder folder;
  write_job(folder);
  ASSERT_EQ(run_moesim(
                {"sweep", "s.json", "--grid", "cluster=cluster.json,dgx-h100x1", "--out", "t.csv", "--quiet"},
                folder.path())
                .exit_code,
            0);
  EXPECT_THAT(files_of(json::parse(read_text(folder.path() / "t.csv.json"))),
              ::testing::IsSupersetOf({"cluster.json", "gpu.json"}));
}

TEST(Outputs, NeverReplaceAnInputOfTheCommand) {
  TempFolder folder;
  write_job(folder);
  folder.write("l.csv", "topk\n1\n2\n");
  const std::string scenario = read_text(folder.path() / "s.json");
  for (const Words& words : {Words{"compare", "s.json", "--timeline", "s.json"},
                             Words{"sweep", "s.json", "--grid", "topk=1,2", "--out", "s.json"},
                             Words{"sweep", "s.json", "--list", "l.csv", "--out", "l.csv"}}) {
    const Outcome outcome = run_moesim(words, folder.path());
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("an input of this command"));
  }
  EXPECT_EQ(read_text(folder.path() / "s.json"), scenario);
  EXPECT_EQ(read_text(folder.path() / "l.csv"), "topk\n1\n2\n");
}

TEST(Outputs, OfOneNameAreRefused) {
  TempFolder folder;
  write_job(folder);
  const Outcome outcome = run_moesim(
      {"sweep", "s.json", "--grid", "topk=1,2", "--out", "r.csv", "--report", "./r.csv"}, folder.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("for both"));
  EXPECT_FALSE(fs::exists(folder.path() / "r.csv"));
}

TEST(Outputs, FollowLinksKeepModesAndLeaveDevices) {
  TempFolder folder;
  write_job(folder);
  folder.write("old.json", "old");
  ASSERT_EQ(::chmod((folder.path() / "old.json").c_str(), 0600), 0);
  fs::create_symlink("old.json", folder.path() / "link.json");
  const auto writes = [&](const std::string& file) {
    return run_moesim({"compare", "s.json", "--draws", "0", "--timeline", file}, folder.path()).exit_code;
  };
  EXPECT_EQ(writes("link.json"), 0);
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link.json"));
  EXPECT_THAT(read_text(folder.path() / "old.json"), HasSubstr("traceEvents"));
  EXPECT_EQ(fs::status(folder.path() / "old.json").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(writes("/dev/null"), 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("nowhere.json", folder.path() / "dangling.json");
  EXPECT_EQ(writes("dangling.json"), 2);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(writes("pipe"), 2);
}

TEST(PlanSearch, OneForecastAtMostIsEnough) {
  TempFolder folder;
  folder.write("s.json", R"({"scope": "step", "model": "olmoe", "cluster": "dgx-h100x1"})");
  const Outcome outcome =
      run_moesim({"whatif", "s.json", "--best", "parallel", "--most", "1", "--quiet"}, folder.path());
  EXPECT_LE(outcome.exit_code, 2) << outcome.err;
}

}  // namespace
}  // namespace moesim::tools
