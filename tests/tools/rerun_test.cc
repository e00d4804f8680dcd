// A result file is enough to get the same bytes again; where it is not, the reason is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "process.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

constexpr const char* kRerunScenario = R"({"model": "mixtral-8x7b", "parallel": {"ep": 8, "seq": 1024},
 "dispatcher": "allgather,alltoall", "routing": "zipf:1.2", "cluster": "dgx-h100x2"})";

class Rerun : public ::testing::Test {
 protected:
  Rerun() { folder_.write("s.json", kRerunScenario); }
  // Runs a command and keeps its JSON in result.json.
  void result_of(Words words) const {
    words.insert(words.end(), {"--format", "json", "--quiet"});
    const Outcome made = run_moesim(words, folder_.path());
    ASSERT_EQ(made.exit_code, 0) << made.err;
    folder_.write("result.json", made.out);
  }
  Outcome rerun(const Words& more = {}) const {
    Words words{"rerun", "result.json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_moesim(words, folder_.path());
  }
  ordered_json kept() const {
    return ordered_json::parse(testing::read_text(folder_.path() / "result.json"));
  }
  void keep(const ordered_json& json) const { folder_.write("result.json", json.dump(2) + "\n"); }
  TempFolder folder_;
};

TEST_F(Rerun, EveryVerbGivesTheSameBytes) {
  const std::string sample = testing::sample_folder().string();
  const std::vector<Words> commands{{"compare", "s.json"},
                                    {"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep",
                                     "8", "--pp", "2", "--scope", "step", "--dispatcher", "alltoall"},
                                    {"whatif", "s.json", "--set", "nvlink.bandwidth=x2"},
                                    {"whatif", "s.json", "--set", "topk=1", "--seed", "2"},
                                    {"whatif", "s.json", "--each", "--set", "ep=4", "--set", "topk=1"},
                                    {"whatif", "s.json", "--sensitivity"},
                                    {"whatif", "s.json", "--crossover", "topk=1..8"},
                                    {"whatif", "s.json", "--map", "topk=1..2", "ep=2,4"},
                                    {"trace", "info", sample + "/scaling"},
                                    {"replay", sample + "/scaling", "--cluster", "echo-h800x2"},
                                    {"list"}};
  for (const Words& command : commands) {
    result_of(command);
    const Outcome again = rerun();
    EXPECT_EQ(again.exit_code, 0) << command[0] << ": " << again.out << again.err;
    EXPECT_THAT(again.out, HasSubstr("the same bytes: moesim " + command[0]));
  }
}

// HH: results that a program from before it saved (tests/saved).
TEST(SavedResults, GiveTheSameBytesOrSayWhyNot) {
  const fs::path saved = fs::path(MOESIM_SOURCE_DIR) / "tests/saved";
  const std::vector<std::string> same{"sweep_grid.csv.json", "sweep_samples.csv.json"};
  for (const char* result :
       {"compare_layer.json", "compare_step.json", "whatif_set.json", "whatif_crossover.json",
        "replay_scaling.json", "replay_realistic.json", "plan_days.json", "plan_machines.json",
        "sweep_grid.csv.json", "sweep_samples.csv.json"}) {
    const Outcome again = run_moesim({"rerun", (saved / result).string(), "--in", MOESIM_SOURCE_DIR});
    if (std::ranges::find(same, result) != same.end() || again.exit_code == 0) {
      EXPECT_EQ(again.exit_code, 0) << result;
      EXPECT_THAT(again.out, ::testing::StartsWith("the same bytes: moesim ")) << result;
    } else {
      EXPECT_EQ(again.exit_code, 1) << result << again.err;
      EXPECT_THAT(again.out, HasSubstr("\n  it was made by another build of moesim ")) << result;
    }
  }
}

TEST(SavedResults, AnInterruptedSweepIsGoneOnWith) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "tests");
  fs::copy(fs::path(MOESIM_SOURCE_DIR) / "tests/saved", folder.path() / "tests/saved");
  const Words words{"sweep", "tests/saved/scenario.json", "--grid", "ep=8,4,7", "-q", "--out"};
  const auto sweep = [&](const std::string& out, const Words& more) {
    Words all = words;
    all.push_back("tests/saved/" + out);
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(run_moesim(all, folder.path()).exit_code, 0) << out;
    return testing::read_text(folder.path() / "tests/saved" / out);
  };
  const std::string before = testing::read_text(folder.path() / "tests/saved/interrupted.csv.partial");
  EXPECT_EQ(std::ranges::count(before, '\n'), 6);
  EXPECT_EQ(sweep("interrupted.csv", {"--resume"}), sweep("whole.csv", {}));
}

TEST_F(Rerun, ATableOfASweep) {
  ASSERT_EQ(
      run_moesim({"sweep", "s.json", "--grid", "topk=1..4", "--out", "r.csv"}, folder_.path()).exit_code, 0);
  const auto made = fs::last_write_time(folder_.path() / "r.csv");
  const Outcome again = run_moesim({"rerun", "r.csv.json"}, folder_.path());
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
  EXPECT_EQ(fs::last_write_time(folder_.path() / "r.csv"), made);
  ordered_json record = ordered_json::parse(testing::read_text(folder_.path() / "r.csv.json"));
  record["rows"]["sha256"] = std::string(64, '0');
  folder_.write("r.csv.json", record.dump(2));
  EXPECT_THAT(run_moesim({"rerun", "r.csv.json"}, folder_.path()).out,
              HasSubstr("r.csv is another table: SHA-256"));
}

TEST_F(Rerun, FilesThatTheCommandWroteAreLeftAlone) {
  result_of({"whatif", "s.json", "--map", "topk=1..2", "ep=2,4", "--picture", "map.svg"});
  folder_.write("map.svg", "mine");
  EXPECT_EQ(rerun().exit_code, 0);
  EXPECT_EQ(testing::read_text(folder_.path() / "map.svg"), "mine");
}

// Files outside of a result are named, not certified.
TEST_F(Rerun, WhatIsNotComparedIsSaid) {
  result_of({"compare", "s.json", "--timeline", "t.json"});
  folder_.write("t.json", "junk");
  const Outcome again = rerun();
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, HasSubstr("not compared, for the result says nothing of them: t.json"));
  EXPECT_EQ(ordered_json::parse(rerun({"--format", "json"}).out)["not_compared"], ordered_json({"t.json"}));
}

TEST_F(Rerun, EveryValueOfARecordIsCompared) {
  ASSERT_EQ(
      run_moesim({"sweep", "s.json", "--grid", "topk=1..2", "--out", "r.csv"}, folder_.path()).exit_code, 0);
  const std::string record = testing::read_text(folder_.path() / "r.csv.json");
  const auto edited = [&](const char* what, const ordered_json& value) {
    ordered_json json = ordered_json::parse(record);
    json[ordered_json::json_pointer(what)] = value;
    folder_.write("r.csv.json", json.dump(2) + "\n");
    const Outcome outcome = run_moesim({"rerun", "r.csv.json"}, folder_.path());
    EXPECT_EQ(outcome.exit_code, 1) << what << outcome.out;
  };
  edited("/inputs/files", ordered_json::object());
  edited("/inputs/scenario", {{"model", "gpt-9"}});
  edited("/definition", {{"x", 1}});
  edited("/rows/scenarios", 999);
  edited("/version", "moesim 9.9");
}

// nohup and scripts start programs with signals that are ignored.
TEST_F(Rerun, ASignalThatIsIgnoredEndsNothing) {
  result_of({"compare", "s.json", "--draws", "300"});
  ::signal(SIGHUP, SIG_IGN);  // the child has it from here
  const pid_t rerun = ::fork();
  if (rerun != 0) ::signal(SIGHUP, SIG_DFL);
  ASSERT_GE(rerun, 0);
  if (rerun == 0) {
    if (::chdir(folder_.path().c_str()) != 0) ::_exit(126);
    ::execl(MOESIM_BINARY, MOESIM_BINARY, "rerun", "result.json", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(rerun, &status, WNOHANG) == 0) {
    ::kill(rerun, SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Results are files of others; some ask for files that never end.
TEST_F(Rerun, AnInputThatIsNoFileIsTheReason) {
  result_of({"compare", "s.json"});
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  ordered_json result = kept();
  result["inputs"]["files"] = {{"pipe", {{"sha256", std::string(64, '0')}}}};
  keep(result);
  const Outcome outcome = rerun();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("pipe: found a special file"));
}

TEST_F(Rerun, AnotherInputFileIsTheReason) {
  result_of({"compare", "s.json"});
  folder_.write("s.json", std::string(kRerunScenario) + "\n");
  const Outcome other = rerun();
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, HasSubstr("s.json is another file: SHA-256 "));
  fs::remove(folder_.path() / "s.json");
  EXPECT_THAT(rerun().out, HasSubstr("s.json is not there"));
}

TEST_F(Rerun, AnotherVersionAndOtherValuesAreReasons) {
  result_of({"compare", "s.json"});
  ordered_json result = kept();
  result["version"] = "0.0.1";
  result["winner"]["dispatcher"] = "magic";
  keep(result);
  const Outcome other = rerun({"--format", "json"});
  EXPECT_EQ(other.exit_code, 1);
  const ordered_json said = ordered_json::parse(other.out);
  EXPECT_EQ(said["schema"], "moesim.rerun/1");
  EXPECT_EQ(said["same"], false);
  EXPECT_THAT(said["reasons"][0].get<std::string>(), HasSubstr("made by moesim 0.0.1"));
  EXPECT_THAT(said["reasons"].dump(), HasSubstr("winner.dispatcher: "));
}

TEST_F(Rerun, FromAnotherFolder) {
  result_of({"compare", "s.json"});
  const fs::path result = folder_.path() / "result.json";
  EXPECT_EQ(run_moesim({"rerun", result.string(), "--in", folder_.path().string()}, "/").exit_code, 0);
  EXPECT_EQ(run_moesim({"rerun", result.string()}, "/").exit_code, 1);
}

TEST_F(Rerun, AResultThatIsNestedDeeplyIsRefused) {
  folder_.write("result.json", std::string(100'000, '[') + std::string(100'000, ']'));
  const Outcome refused = rerun();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.error_lines(), 1u) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("nested deeper than 64 levels"));
}

TEST_F(Rerun, ATableThatWasEditedOrDeletedIsTheReason) {
  ASSERT_EQ(
      run_moesim({"sweep", "s.json", "--grid", "topk=1..2", "--out", "r.csv"}, folder_.path()).exit_code, 0);
  const std::string rows = testing::read_text(folder_.path() / "r.csv");
  folder_.write("r.csv", rows + "2,4,alltoall,1\n");
  const Outcome edited = run_moesim({"rerun", "r.csv.json"}, folder_.path());
  EXPECT_EQ(edited.exit_code, 1);
  EXPECT_THAT(edited.out, HasSubstr("r.csv is another table"));
  fs::remove(folder_.path() / "r.csv");
  const Outcome deleted = run_moesim({"rerun", "r.csv.json"}, folder_.path());
  EXPECT_EQ(deleted.exit_code, 1);
  EXPECT_THAT(deleted.out, HasSubstr("r.csv is not there"));
}

// Results are files of others: nothing that they ask for writes, starts itself again or stays.
TEST_F(Rerun, ACraftedResultDoesNothing) {
  folder_.write("mine", "keep");
  const auto crafted = [&](const Words& command) {
    keep({{"schema", "moesim.compare/1"},
          {"version", "1"},
          {"inputs", {{"command", command}}},
          {"rows", {{"file", "mine"}, {"sha256", std::string(64, '0')}}}});
    return rerun();
  };
  for (const Words& command :
       {Words{"rerun", "result.json"}, Words{"trace", "synthesize", "--to", "mine"},
        Words{"trace", "convert", "s.json", "mine"}, Words{"calibrate", "measure", "--out", "mine"},
        Words{"calibrate", "fit", "s.json", "-omine"}, Words{"completion", "bash"},
        Words{std::string("compare\0", 8), "s.json"}}) {
    const Outcome refused = crafted(command);
    EXPECT_EQ(refused.exit_code, 2) << command[0];
    EXPECT_EQ(refused.error_lines(), 1U) << refused.err;
  }
  // An output with unusual spelling is not written.
  for (const Words& command : {Words{"compare", "s.json", "--timeline", "--", "mine"},
                               Words{"compare", "--timeline=x", "s.json", "--report", "mine"},
                               Words{"whatif", "s.json", "--map", "topk=1..2", "ep=2,4", "--picture=mine"}})
    EXPECT_EQ(crafted(command).exit_code, 1) << command[0];
  EXPECT_EQ(testing::read_text(folder_.path() / "mine"), "keep");
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("s.json", "result.json", "mine"));
}

TEST_F(Rerun, WritesOnlyInItsOwnFolder) {
  ASSERT_EQ(::setenv("MOESIM_WRITE_ONLY_IN", "/nowhere", 1), 0);
  const Outcome guarded =
      run_moesim({"compare", "s.json", "--draws", "0", "--timeline", "t.json"}, folder_.path());
  ::unsetenv("MOESIM_WRITE_ONLY_IN");
  EXPECT_EQ(guarded.exit_code, 2);
  EXPECT_THAT(guarded.err, HasSubstr("outside of the folder"));
  EXPECT_FALSE(fs::exists(folder_.path() / "t.json"));
}

TEST_F(Rerun, ASignalEndsItsChildAndLeavesNothing) {
  const TempFolder temporary;
  folder_.write("r.csv", "rows");
  keep({{"schema", "moesim.sweep/1"},
        {"version", "1"},
        {"inputs", {{"command", {"sweep", "s.json", "--grid", "parallel.seq=1..500000", "--out", "r.csv"}}}},
        {"rows", {{"file", "r.csv"}, {"sha256", sha256_hex("rows")}}}});
  const pid_t rerun = ::fork();
  ASSERT_GE(rerun, 0);
  if (rerun == 0) {
    if (::chdir(folder_.path().c_str()) != 0 || ::setenv("TMPDIR", temporary.path().c_str(), 1) != 0)
      ::_exit(126);
    ::execl(MOESIM_BINARY, MOESIM_BINARY, "rerun", "result.json", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  // Until the child writes rows.
  const auto writing = [&] {
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(temporary.path(), none))
      if (entry.path().string().ends_with(".partial") && fs::file_size(entry.path(), none) > 1000)
        return true;
    return false;
  };
  for (int i = 0; i < 3000 && !writing(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(writing());
  const std::string task = "/proc/" + std::to_string(rerun) + "/task/" + std::to_string(rerun) + "/children";
  const std::string child = testing::read_text(task);
  ::kill(rerun, SIGTERM);
  int status = 0;
  ::waitpid(rerun, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_TRUE(fs::is_empty(temporary.path()));
  ASSERT_FALSE(child.empty());
  EXPECT_NE(::kill(std::stoi(child), 0), 0) << "the child is still there";
}

TEST_F(Rerun, WithoutATemporaryFolderItSaysSo) {
  result_of({"compare", "s.json"});
  ASSERT_EQ(::setenv("TMPDIR", "/no/such/folder", 1), 0);
  const Outcome refused = rerun();
  ::unsetenv("TMPDIR");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("TMPDIR"));
  // One that is relative to here, not to where the command runs.
  fs::create_directory(folder_.path() / "tt");
  ASSERT_EQ(::setenv("TMPDIR", "tt", 1), 0);
  const Outcome again = rerun({"--in", "."});
  ::unsetenv("TMPDIR");
  EXPECT_EQ(again.exit_code, 0) << again.out;
}

}  // namespace
}  // namespace moesim::tools
