// Files that are none, output that cannot be written: one line, exit 2, and nothing half-written.
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

#include "process.h"
#include "refusal.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;

void expect_refusal_that_says(const Outcome& outcome, const std::string& says) {
  testing::expect_refusal(outcome, HasSubstr(says));
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
