// Claims that no machine can hold, files that are none, output that cannot be written: one line, exit 2, and
// nothing half-written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "process.h"
#include "refusal.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

void expect_refusal_that_says(const Outcome& outcome, const std::string& says) {
  testing::expect_refusal(outcome, HasSubstr(says));
}

struct Claim {
  std::string name, scenario, says;
};
void PrintTo(const Claim& claim, std::ostream* out) { *out << claim.name; }

std::string nested(const std::string& open, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += open;
  return out;
}

std::vector<Claim> claims() {
  const std::string model = R"({"model": "mixtral-8x7b", )";
  return {
      {"infinite_size", model + R"("parallel": {"seq": 1e400}})", "not JSON"},
      {"no_number", model + R"("parallel": {"seq": NaN}})", "not JSON"},
      {"negative_size", model + R"("parallel": {"seq": -5}})", "found parallel.seq -5"},
      {"more_than_64_bits", model + R"("parallel": {"seq": 99999999999999999999}})", "parallel.seq"},
      {"fraction", model + R"("parallel": {"ep": 1.5}})", "expected a whole number"},
      {"a_million_million_ranks", model + R"("parallel": {"ep": 1000000000000}})",
       "parallel.ep 1000000000000"},
      {"product_of_sizes", model + R"("parallel": {"ep": 8, "seq": 2147483648, "micro_batch": 2147483648}})",
       "expected at most 2^40 tokens"},
      {"nodes", model + R"("cluster": {"profile": "h100-sxm", "nodes": 4294967296}})", "cluster.nodes"},
      {"bandwidth",
       model + R"("cluster": {"profile": "h100-sxm", "nodes": 2, "nic": {"bandwidth": "1e308GBps"}}})",
       "physical range"},
      {"negative_bandwidth",
       model + R"("cluster": {"profile": "h100-sxm", "nodes": 2, "nic": {"bandwidth": "-1GBps"}}})",
       "physical range"},
      {"passes", model + R"("scope": "step", "parallel": {"ep": 8, "pp": 32, "microbatches": 1000000000}})",
       "2^18 layers"},
      {"layers", R"({"model": {"hidden": 64, "layers": 2147483648, "attention": {"heads": 4}, "experts": 8,
        "topk": 2, "expert_ffn": 64}})",
       "model.layers"},
      {"experts",
       R"({"model": {"hidden": 64, "layers": 2, "attention": {"heads": 4}, "experts": 1000000000000,
        "topk": 2, "expert_ffn": 64}})",
       "model.experts"},
      {"deep_arrays", nested("[", 100000), "nested deeper"},
      {"deep_objects", nested(R"({"a":)", 100000), "nested deeper"},
      {"zero_bytes", std::string(100, '\0'), ":1:1: found the byte 0x00"},
      {"nothing", "", "not JSON"},
  };
}

class Limits : public ::testing::TestWithParam<Claim> {};

TEST_P(Limits, AreCheckedBeforeAnythingIsAllocated) {
  const TempFolder folder;
  folder.write("s.json", GetParam().scenario);
  expect_refusal_that_says(run_moesim({"compare", "s.json"}, folder.path()), GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(Moesim, Limits, ::testing::ValuesIn(claims()),
                         [](const auto& info) { return info.param.name; });

TEST(Limits, OfRoutingFilesAndNetworks) {
  const TempFolder folder;
  folder.write("ranks.json", R"({"ep": 1000000000000, "experts": 8, "per_rank_results": {}})");
  folder.write("experts.json", R"({"ep": 8, "experts": 1000000000000, "per_rank_results": {}})");
  for (const char* file : {"ranks.json", "experts.json"})
    expect_refusal_that_says(
        run_moesim({"compare", "--model", "mixtral-8x7b", "--ep", "8", "--routing", file}, folder.path()),
        file + std::string(":1: found "));
  folder.write("tree.json",
               R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "cluster": {"profile": "h100-sxm",
    "nodes": 1000000, "fabric": {"preset": "rail-tree"}}})");
  expect_refusal_that_says(run_moesim({"compare", "tree.json", "--timing", "flow"}, folder.path()), "32768");
}

TEST(Limits, OfSweeps) {
  const TempFolder folder;
  folder.write("s.json", R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}})");
  expect_refusal_that_says(
      run_moesim({"sweep", "s.json", "--grid", "parallel.ep=1..1000000000000"}, folder.path()), "at most");
  expect_refusal_that_says(
      run_moesim({"sweep", "s.json", "--sample", "100000000000000", "--range", "topk=1..4"}, folder.path()),
      "at most");
}

TEST(StrangeFiles, AreNamed) {
  const TempFolder folder;
  fs::create_symlink("two", folder.path() / "one");
  fs::create_symlink("one", folder.path() / "two");
  fs::create_directory(folder.path() / "ring");
  fs::create_symlink("../ring", folder.path() / "ring" / "again");
  for (const char* verb : {"compare", "replay"}) {
    expect_refusal_that_says(run_moesim({verb, "one"}, folder.path()),
                             "one: cannot open: Too many levels of symbolic links");
    expect_refusal_that_says(run_moesim({verb, "/dev/zero"}, folder.path()),
                             "/dev/zero: found a special file");
    expect_refusal_that_says(run_moesim({verb, "missing"}, folder.path()),
                             "missing: cannot open: No such file");
  }
  expect_refusal_that_says(run_moesim({"replay", "ring"}, folder.path()), "without rank files");
  expect_refusal_that_says(run_moesim({"calibrate", "check", "h100-sxm", "--against", "ring"}, folder.path()),
                           "ring");
}

TEST(StrangeFiles, UnreadableOnesToo) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const TempFolder folder;
  folder.write("s.json", "{}");
  fs::permissions(folder.path() / "s.json", fs::perms::none);
  expect_refusal_that_says(run_moesim({"compare", "s.json"}, folder.path()), "Permission denied");
}

// No file of the child may grow beyond a kilobyte, as on a full disk.
class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = 1024;
    folder_.write("s.json",
                  R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "dispatcher": "allgather,alltoall"})");
    setrlimit(RLIMIT_FSIZE, &small);
  }
  void TearDown() override { setrlimit(RLIMIT_FSIZE, &before_); }
  TempFolder folder_;
  rlimit before_{};
};

TEST_F(FullDisk, LeavesNothingHalfWritten) {
  expect_refusal_that_says(run_moesim({"compare", "s.json", "-q", "--timeline", "t.json"}, folder_.path()),
                           "t.json: cannot write");
  EXPECT_FALSE(fs::exists(folder_.path() / "t.json"));
  expect_refusal_that_says(
      run_moesim({"sweep", "s.json", "-q", "--grid", "topk=1..8", "--out", "r.csv"}, folder_.path()),
      "r.csv");
  EXPECT_FALSE(fs::exists(folder_.path() / "r.csv"));
}

// Ctrl-C and a batch system's SIGTERM end a sweep as a signal does, and what is done is kept for --resume.
TEST(Signals, EndASweepThatCanBeResumed) {
  for (const int number : {SIGINT, SIGTERM}) {
    const TempFolder folder;
    folder.write("s.json",
                 R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "dispatcher": "allgather,alltoall"})");
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (chdir(folder.path().c_str()) != 0) _exit(126);
      execl(MOESIM_BINARY, MOESIM_BINARY, "sweep", "s.json", "-q", "--grid", "parallel.seq=1..500000",
            "--out", "r.csv", static_cast<char*>(nullptr));
      _exit(127);
    }
    const fs::path partial = folder.path() / "r.csv.partial";
    std::error_code none;
    for (int i = 0; i < 2000 && (!fs::exists(partial) || fs::file_size(partial, none) < 1000); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child, number);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the sweep was over too early, or the signal was not an end";
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_FALSE(fs::exists(folder.path() / "r.csv"));
    EXPECT_TRUE(fs::exists(partial));
    for (const auto& entry : fs::directory_iterator(folder.path()))
      EXPECT_THAT(entry.path().filename().string(),
                  ::testing::AnyOf("s.json", "r.csv.partial", "r.csv.partial.json", "r.csv.partial.sums"));
  }
}

}  // namespace
}  // namespace moesim::tools
