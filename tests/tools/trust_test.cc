// A result names all files that were read, and no output replaces a protected file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/show/report_template.h"

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
using testing::with;
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
  // As if killed after two rows.
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

// Names lead to files in other ways than by their path: a folder of a model, a file beside the scenario.
TEST(FilesRead, ASweepIsToldByEveryFileThatItsRowsRead) {
  TempFolder folder;
  write_job(folder);
  const std::string model = R"({"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2})";
  fs::create_directories(folder.path() / "hf");
  fs::create_directories(folder.path() / "sub");
  folder.write("hf/config.json", model);
  for (const char* name : {"gpu.json", "cluster.json", "s.json"})
    folder.write(std::string("sub/") + name, read_text(folder.path() / name));
  folder.write("sub/other.json",
               R"({"name": "other", "profile": "own.json", "nodes": 2, "gpus_per_node": 8})");
  folder.write("own.json", read_text(folder.path() / "gpu.json"));
  folder.write("fabric.json", R"({"preset": "fat-tree"})");
  folder.write("wired.json", R"({"base": "dgx-h100x2", "fabric": "fabric.json"})");
  folder.write("sub/slow.json", R"({"slow_gpus": [{"gpu": 3, "factor": 1.5}]})");
  struct Case {
    Words words;
    std::string file;
  };
  const std::string sample = testing::scaling();
  for (const Case& c :
       {Case{{"s.json", "--grid", "model=hf"}, "hf/config.json"},
        Case{{"sub/s.json", "--grid", "cluster=other.json"}, "own.json"},
        Case{{"sub/s.json", "--grid", "model=missing.json,olmoe", "--grid", "cluster=other.json"},
             "own.json"},
        Case{{"sub/s.json", "--grid", "faults=slow.json"}, "sub/slow.json"},
        Case{{"s.json", "--grid", R"(cluster={"base": "dgx-h100x2", "profile": "own.json"})"}, "own.json"},
        Case{{"replay", sample, "--timing", "flow", "--cluster", "wired.json", "--grid", "microbatches=4,8"},
             "fabric.json"},
        Case{{"replay", sample, "--cluster", "dgx-h100x2", "--grid", "model=hf"}, "hf/config.json"}}) {
    Words words{"sweep"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Outcome outcome =
        run_moesim(with(words, {"--out", "t.csv", "--overwrite", "--quiet"}), folder.path());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json record = json::parse(read_text(folder.path() / "t.csv.json"));
    for (const json& files : {record.at("inputs").at("files"), record.at("definition").at("files")})
      EXPECT_TRUE(std::any_of(files.items().begin(), files.items().end(),
                              [&](const auto& one) { return std::string(one.key()).ends_with(c.file); }))
          << c.file << " in " << files;
    const std::string kept = read_text(folder.path() / c.file);
    const Outcome over = run_moesim(with(words, {"--out", c.file, "--overwrite", "--quiet"}), folder.path());
    EXPECT_EQ(over.exit_code, 2);
    EXPECT_EQ(read_text(folder.path() / c.file), kept);
  }
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

TEST(Outputs, OfASweepFollowLinksAndKeepModes) {
  TempFolder folder;
  write_job(folder);
  folder.write("old.csv", "old");
  ASSERT_EQ(::chmod((folder.path() / "old.csv").c_str(), 0600), 0);
  fs::create_directory(folder.path() / "elsewhere");
  fs::create_symlink("../old.csv", folder.path() / "elsewhere/link.csv");
  const Words words{"sweep", "s.json", "--grid", "topk=1,2", "--quiet", "--out", "elsewhere/link.csv"};
  const Outcome outcome = run_moesim(words, folder.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(fs::is_symlink(folder.path() / "elsewhere/link.csv"));
  EXPECT_THAT(read_text(folder.path() / "old.csv"), HasSubstr("alltoall"));
  EXPECT_EQ(fs::status(folder.path() / "old.csv").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_TRUE(fs::exists(folder.path() / "old.csv.json"));
  EXPECT_EQ(run_moesim(with(words, {"--resume"}), folder.path()).exit_code, 0);
  EXPECT_EQ(run_moesim({"rerun", "old.csv.json"}, folder.path()).exit_code, 0);
  if (!report_missing().empty()) GTEST_SKIP() << report_missing();
  // Its own files stand where the link leads.
  EXPECT_THAT(run_moesim(with(words, {"--report", "old.csv.json"}), folder.path()).err,
              HasSubstr("beside its table"));
}

// The files that a sweep writes beside its table have names that the user did not give.
TEST(Outputs, BesideATableReplaceNothingOfOthers) {
  TempFolder folder;
  write_job(folder);
  const std::string job = read_text(folder.path() / "s.json");
  const auto refused = [&](const Words& more, const char* says) {
    const Outcome outcome =
        run_moesim(with({"sweep", "--grid", "topk=1,2", "--quiet", "--out", "r.csv"}, more), folder.path());
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(says));
    EXPECT_FALSE(fs::exists(folder.path() / "r.csv"));
  };
  for (const char* ending : {".partial.sums", ".partial.json"}) {
    const std::string name = std::string("r.csv") + ending;
    folder.write(name, "my diary\n");
    refused({"s.json"}, ending == std::string(".partial.json") ? "not JSON" : "a file that no sweep wrote");
    EXPECT_EQ(read_text(folder.path() / name), "my diary\n");
    fs::remove(folder.path() / name);
  }
  folder.write("diary", "mine");
  fs::create_hard_link(folder.path() / "diary", folder.path() / "r.csv.partial");
  refused({"s.json", "--overwrite"}, "a file of several names");
  EXPECT_EQ(read_text(folder.path() / "diary"), "mine");
  fs::remove(folder.path() / "r.csv.partial");

  folder.write("r.csv.json", job);
  refused({"r.csv.json"}, "an input of this command");
  EXPECT_EQ(read_text(folder.path() / "r.csv.json"), job);
  refused({"s.json"}, "a file that no sweep wrote");
  EXPECT_EQ(read_text(folder.path() / "r.csv.json"), job);
  fs::remove(folder.path() / "r.csv.json");

  for (const char* ending : {".partial", ".partial.sums"}) {
    const std::string name = std::string("r.csv") + ending;
    folder.write(name, "parallel.ep\n2\n4\n");
    refused({"s.json", "--list", name, "--overwrite"}, "an input of this command");
    EXPECT_EQ(read_text(folder.path() / name), "parallel.ep\n2\n4\n");
    fs::remove(folder.path() / name);
    fs::create_symlink("s.json", folder.path() / name);
    refused({R"({"model": "olmoe", "cluster": "dgx-h100x1"})", "--overwrite"}, "a link");
    fs::remove(folder.path() / name);
  }
  EXPECT_EQ(read_text(folder.path() / "s.json"), job);
  if (!report_missing().empty()) GTEST_SKIP() << report_missing();
  refused({"s.json", "--report", "r.csv.json"}, "beside its table");
}

TEST(PlanSearch, OneForecastAtMostIsEnough) {
  TempFolder folder;
  folder.write("s.json", R"({"scope": "step", "model": "olmoe", "cluster": "dgx-h100x1"})");
  const Outcome outcome =
      run_moesim({"whatif", "s.json", "--best", "parallel", "--most", "1", "--quiet"}, folder.path());
  EXPECT_LE(outcome.exit_code, 2) << outcome.err;
}

// Rows of a sweep that ended by itself at a bad scenario (--strict and an EP of 7), so that its partial file
// and chain stay.
class Partials : public ::testing::Test {
 protected:
  Partials() {
    write_job(folder_);
    Words good = words_;
    good.insert(good.end(), {"--out", "whole.csv"});
    EXPECT_EQ(run_moesim(good, folder_.path()).exit_code, 0);
    whole_ = read_text(folder_.path() / "whole.csv");
    EXPECT_EQ(run_moesim(with(words_, {"--out", "t.csv", "--strict"}), folder_.path()).exit_code, 2);
    for (const char* ending : {"", ".json", ".sums"})
      kept_.push_back(read_text(folder_.path() / (std::string("t.csv.partial") + ending)));
  }
  void restore() const {
    folder_.write("t.csv.partial", kept_[0]);
    folder_.write("t.csv.partial.json", kept_[1]);
    folder_.write("t.csv.partial.sums", kept_[2]);
    fs::remove(folder_.path() / "t.csv");
  }
  Outcome resume() const { return run_moesim(with(words_, {"--out", "t.csv", "--resume"}), folder_.path()); }

  TempFolder folder_;
  const Words words_{"sweep",   "s.json",    "--grid", "parallel.ep=2,4,8,7", "--grid", "topk=1..6",
                     "--quiet", "--threads", "1"};
  std::string whole_;
  Words kept_;
};

TEST_F(Partials, OfAnEndedSweepGoOnBehindTheLastChecksum) {
  EXPECT_GT(std::count(kept_[2].begin(), kept_[2].end(), '\n'), 2);
  restore();
  const Outcome done = resume();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(read_text(folder_.path() / "t.csv"), whole_);
  for (const char* ending : {".partial", ".partial.json", ".partial.sums"})
    EXPECT_FALSE(fs::exists(folder_.path() / (std::string("t.csv") + ending)));
}

TEST_F(Partials, ThatWereDamagedAreNeverCertified) {
  int refused = 0;
  for (std::size_t at = 0; at < kept_[0].size(); at += kept_[0].size() / 60) {
    restore();
    std::string rows = kept_[0];
    rows[at] = rows[at] == '1' ? '2' : '1';
    folder_.write("t.csv.partial", rows);
    const Outcome outcome = resume();
    if (outcome.exit_code == 0) {  // behind the last checksum: those rows were made again
      EXPECT_EQ(read_text(folder_.path() / "t.csv"), whole_) << at;
    } else {
      EXPECT_EQ(outcome.exit_code, 2);
      EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr("rows that are not those of their checksum"));
      EXPECT_EQ(read_text(folder_.path() / "t.csv.partial"), rows) << "a refusal changes nothing";
      ++refused;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST_F(Partials, WithADamagedChainAreRefused) {
  for (const std::string& damage : Words{"x", "0 1 abc\n", "99 0 " + std::string(64, '0') + "\n"}) {
    restore();
    folder_.write("t.csv.partial.sums", kept_[2].substr(0, kept_[2].find('\n') + 1) + damage + "\n");
    const Outcome outcome = resume();
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("t.csv.partial"));
  }
}

// One digit says which scenarios were done.
TEST_F(Partials, WithAnotherCountAreRefused) {
  const std::size_t last = kept_[2].rfind('\n', kept_[2].size() - 2) + 1;
  const std::size_t end = kept_[2].find(' ', last);
  const int done = std::stoi(kept_[2].substr(last, end - last));
  for (const int said : {done - 2, done + 1}) {
    restore();
    folder_.write("t.csv.partial.sums",
                  kept_[2].substr(0, last) + std::to_string(said) + kept_[2].substr(end));
    const Outcome outcome = resume();
    EXPECT_EQ(outcome.exit_code, 2) << said;
    EXPECT_THAT(outcome.err, HasSubstr("t.csv.partial"));
  }
}

// Rows and their chain beside the definition of another sweep, as a kill in the middle of --overwrite left
// them.
TEST_F(Partials, OfAnotherSweepAreNeverGoneOnWith) {
  folder_.write("b.json", R"({"model": "olmoe", "cluster": "dgx-b200x1", "dispatcher": "alltoall"})");
  Words words = words_;
  words[1] = "b.json";
  ASSERT_EQ(run_moesim(with(words, {"--out", "b.csv", "--strict"}), folder_.path()).exit_code, 2);
  restore();
  folder_.write("t.csv.partial.json", read_text(folder_.path() / "b.csv.partial.json"));
  const Outcome outcome = run_moesim(with(words, {"--out", "t.csv", "--resume"}), folder_.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("rows that are not those of their checksum"));
}

// The last step of a sweep is its table's name; killed before it, the sweep is not made again.
TEST_F(Partials, ThatLackTheirNameOnlyAreNamed) {
  restore();
  ASSERT_EQ(resume().exit_code, 0);
  const std::string record = read_text(folder_.path() / "t.csv.json");
  fs::rename(folder_.path() / "t.csv", folder_.path() / "t.csv.partial");
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(read_text(folder_.path() / "t.csv"), whole_);
  EXPECT_EQ(read_text(folder_.path() / "t.csv.json"), record);
  EXPECT_FALSE(fs::exists(folder_.path() / "t.csv.partial"));
}

TEST_F(Partials, AreCutWhereALostMachineLostRows) {
  for (std::size_t size = 0; size < kept_[0].size(); size += 101) {
    restore();
    folder_.write("t.csv.partial", kept_[0].substr(0, size));
    EXPECT_EQ(resume().exit_code, 0) << size;
    EXPECT_EQ(read_text(folder_.path() / "t.csv"), whole_) << size;
  }
}

TEST_F(Partials, AFinishedTableThatWasChangedIsNotComplete) {
  restore();
  ASSERT_EQ(resume().exit_code, 0);
  folder_.write("t.csv", whole_ + "24,7,1,alltoall,1\n");
  const Outcome changed = resume();
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_THAT(changed.err, HasSubstr("a table that is not the one of its record"));
}

TEST(Names, AreShownAndNotObeyed) {
  TempFolder folder;
  write_job(folder);
  json cluster = json::parse(read_text(folder.path() / "cluster.json"));
  cluster["name"] =
      "evil\x1b]0;owned\x07\xc2\x9b"
      "31m\xe2\x80\xae";
  folder.write("cluster.json", cluster.dump());
  for (const Words& words : {Words{"compare", "s.json", "--draws", "0"},
                             Words{"compare", "s.json", "--draws", "0", "--format", "json"},
                             Words{"compare", "s.json", "--draws", "0", "--format", "csv"},
                             Words{"whatif", "s.json", "--set", "topk=1"}}) {
    const Outcome outcome = run_moesim(words, folder.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const std::string raw : {"\x1b]", "\x07", "\xc2\x9b", "\xe2\x80\xae"})
      EXPECT_EQ((outcome.out + outcome.err).find(raw), std::string::npos) << words[0];
  }
  // Where there are colours only ours go through.
  const Outcome terminal =
      run_moesim({"compare", "s.json", "--draws", "0"}, folder.path(), testing::Output::kTerminal);
  EXPECT_EQ(terminal.out.find("\x1b]"), std::string::npos);
  EXPECT_THAT(terminal.out, HasSubstr("evil\\x1b]0;owned\\x07\\u009b31m\\u202e"));
}

// A name that is written like moesim's own colours colours nothing; one of several lines forges none.
TEST(Names, ForgeNeitherColoursNorLines) {
  TempFolder folder;
  write_job(folder);
  json cluster = json::parse(read_text(folder.path() / "cluster.json"));
  cluster["name"] = "x\x1b[1mINK\x1b[0m";
  folder.write("cluster.json", cluster.dump());
  for (const testing::Output output : {testing::Output::kCaptured, testing::Output::kTerminal}) {
    const Outcome outcome = run_moesim({"compare", "s.json", "--draws", "0"}, folder.path(), output);
    EXPECT_THAT(outcome.out, HasSubstr("x\\x1b[1mINK\\x1b[0m"));
  }
  cluster["name"] = "x\nFORGED";
  folder.write("cluster.json", cluster.dump());
  const Outcome forged = run_moesim({"compare", "s.json", "--draws", "0"}, folder.path());
  EXPECT_EQ(forged.exit_code, 2);
  EXPECT_EQ(forged.error_lines(), 1U) << forged.err;
  EXPECT_THAT(forged.err, HasSubstr("cluster.json:1: found name 'x FORGED' of several lines"));
  folder.write("m\nFORGED.json", "{}");
  const Outcome named = run_moesim({"compare", "s.json", "--model", "m\nFORGED.json"}, folder.path());
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_EQ(named.error_lines(), 1U) << named.err;
}

// Written files are shown with cat, or opened by a browser.
TEST(Names, AreEscapedInFilesToo) {
  TempFolder folder;
  write_job(folder);
  json cluster = json::parse(read_text(folder.path() / "cluster.json"));
  cluster["name"] = "n\xc2\x9b\xe2\x80\xae\xef\xbf\xbe";
  folder.write("cluster.json", cluster.dump());
  const auto written = [&](const Words& words, const char* file) {
    const Outcome outcome = run_moesim(words, folder.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string text = read_text(folder.path() / file);
    EXPECT_FALSE(text.empty());
    for (const std::string raw : {"\xc2\x9b", "\xe2\x80\xae", "\xef\xbf\xbe"})
      EXPECT_EQ(text.find(raw), std::string::npos) << file;
    return text;
  };
  EXPECT_THAT(written({"compare", "s.json", "--draws", "0", "--timeline", "t.json"}, "t.json"),
              HasSubstr("traceEvents"));
  written({"whatif", "s.json", "--map", "topk=1..2", "ep=4,8", "--draws", "0", "--picture", "m.svg"},
          "m.svg");
  written({"sweep", "s.json", "--grid", "model=olmoe,\xe2\x80\xae", "--out", "t.jsonl", "--quiet"},
          "t.jsonl");
}

TEST(Cells, AreNoFormulas) {
  TempFolder folder;
  write_job(folder);
  folder.write("=cmd", "{}");
  ASSERT_EQ(run_moesim({"sweep", "s.json", "--grid", "cluster==cmd,@SUM(A1)", "--out", "t.csv", "--quiet"},
                       folder.path())
                .exit_code,
            0);
  const std::string rows = read_text(folder.path() / "t.csv");
  EXPECT_THAT(rows, HasSubstr(",'=cmd,"));
  EXPECT_EQ(rows.find(",=cmd"), std::string::npos);
  EXPECT_THAT(rows, HasSubstr(",'@SUM(A1),"));
}

// Each of these ended in an internal error.
TEST(Dirt, IsOneLineBeforeTheWork) {
  TempFolder folder;
  write_job(folder);
  folder.write("latin.json", "{\n\"model\": \"olmo\xe9\"}");
  folder.write("latin.csv", "topk\n1\n\xff\n");
  folder.write("latin/rank0.txt", "\xe9\n");
  fs::create_symlink("loop", folder.path() / "loop");
  fs::create_directory(folder.path() / "traces");
  fs::create_symlink("b.json", folder.path() / "traces" / "b.json");
  const std::vector<std::pair<Words, std::string>> cases{
      {{"compare", "latin.json"}, "latin.json:2:15: found the byte 0xe9, expected text in UTF-8"},
      {{"sweep", "s.json", "--list", "latin.csv"}, "latin.csv:3:1: found the byte 0xff"},
      {{"replay", "latin", "--cluster", "dgx-h100x1"}, "rank0.txt:1:1: found the byte 0xe9"},
      {{"compare", "s.json", "--routing", "\xff"}, "command line: found '\\xff', expected text in UTF-8"},
      {{"whatif", "s.json", "--set", "cluster=\xfe"}, "command line: found"},
      {{"compare", "loop"}, "loop"},
      {{"trace", "info", "loop"}, "loop"},
      {{"trace", "convert", "traces", "out"}, "traces"},
      {{"validate", "--forecast", "loop", "--measured", "loop", "--cluster", "dgx-h100x1"}, "loop"}};
  for (const auto& [words, message] : cases) {
    const Outcome outcome = run_moesim(words, folder.path());
    EXPECT_EQ(outcome.exit_code, 2) << words[0] << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace moesim::tools
