// Requests that `moesim serve` accepts: their heads, judged before anything else reads them.
#include "tools/moesim/serve/request_guard.h"

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
#include "tools/moesim/serve/limits.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;

KnownHosts local() { return {{"localhost", "127.0.0.1", "[::1]"}, false, 8765}; }

// The status of a refusal; 0 where there is none.
int status(const std::string& head, const KnownHosts& hosts = local()) {
  const auto refusal = refuse_head(head, hosts);
  if (refusal) {
    EXPECT_FALSE(refusal->why.empty());
  }
  return refusal ? refusal->status : 0;
}

std::string get(const std::string& headers, const std::string& target = "/") {
  return "GET " + target + " HTTP/1.1\r\n" + headers + "\r\n";
}

std::string post(const std::string& headers, const std::string& length = "2") {
  return "POST /answer HTTP/1.1\r\nHost: localhost:8765\r\nContent-Length: " + length + "\r\n" + headers +
         "\r\n";
}

const std::string kHost = "Host: 127.0.0.1:8765\r\n", kJson = "Content-Type: application/json\r\n";

TEST(RequestGuard, ListensToItsOwnPage) {
  EXPECT_EQ(status(get(kHost)), 0);
  EXPECT_EQ(status(get("host:   LOCALHOST:8765  \r\nAccept: */*\r\n")), 0);
  EXPECT_EQ(status(get("Host: [::1]:8765\r\n")), 0);
  EXPECT_EQ(status(post(kJson)), 0);
  EXPECT_EQ(status(post("Content-Type: Application/JSON; charset=utf-8\r\nOrigin: http://localhost:8765\r\n"
                        "Sec-Fetch-Site: same-origin\r\n")),
            0);
  // A link on another site's page leads here; a question does not come of one.
  EXPECT_EQ(status(get(kHost + "Sec-Fetch-Site: cross-site\r\n")), 0);
  EXPECT_EQ(status(post(kJson + "Sec-Fetch-Site: cross-site\r\n")), 403);
  EXPECT_EQ(status(post(kJson + "Sec-Fetch-Site: same-site\r\n")), 403);
}

TEST(RequestGuard, KnowsItsNames) {
  for (const char* host :
       {"evil.example:8765", "localhost", "localhost:80", "127.0.0.1:8766", "127.0.0.2:8765", "[::2]:8765",
        "localhost:8765:8765", "localhost.:8765", "", ":8765", "localhost:", "localhost:08765x"})
    EXPECT_EQ(status(get("Host: " + std::string(host) + "\r\n")), 403) << host;
  EXPECT_EQ(status(get("")), 400);
  EXPECT_EQ(status(get(kHost + kHost)), 400);
  KnownHosts open = local();
  open.any_address = true;
  EXPECT_EQ(status(get("Host: 192.0.2.7:8765\r\n"), open), 0);
  EXPECT_EQ(status(get("Host: [2001:db8::7]:8765\r\n"), open), 0);
  EXPECT_EQ(status(get("Host: evil.example:8765\r\n"), open), 403);
  open.names.push_back("node7.example");
  EXPECT_EQ(status(get("Host: Node7.example:8765\r\n"), open), 0);
  KnownHosts standard = local();
  standard.port = 80;
  EXPECT_EQ(status(get("Host: localhost\r\n"), standard), 0);
}

TEST(RequestGuard, RefusesOtherOrigins) {
  for (const char* origin :
       {"http://evil.example", "null", "https://localhost:8765", "http://127.0.0.1:8765", ""})
    EXPECT_EQ(status(post(kJson + "Origin: " + origin + "\r\n")), 403) << origin;
}

TEST(RequestGuard, TakesJsonOfAKnownLength) {
  EXPECT_EQ(status(post("Content-Type: text/plain\r\n")), 415);
  EXPECT_EQ(status(post("Content-Type: application/jsonx\r\n")), 415);
  EXPECT_EQ(status(post("")), 415);
  EXPECT_EQ(status(post(kJson + "Content-Type: text/plain\r\n")), 415);
  EXPECT_EQ(status(post(kJson, std::to_string(kMostBodyBytes))), 0);
  EXPECT_EQ(status(post(kJson, std::to_string(kMostBodyBytes + 1))), 413);
  for (const char* length : {"-1", "1e3", "", "99999999999999999999", "2, 2"})
    EXPECT_EQ(status(post(kJson, length)), 400) << length;
  EXPECT_EQ(status(post(kJson + "Content-Length: 2\r\n")), 400);
  EXPECT_EQ(status("POST /answer HTTP/1.1\r\n" + kHost + kJson + "\r\n"), 411);
  EXPECT_EQ(status(get(kHost + "Content-Length: 5\r\n")), 400);
  for (const char* name : {"Transfer-Encoding: chunked", "Content-Encoding: gzip", "Expect: 100-continue",
                           "Upgrade: h2c", "Range: bytes=0-1"})
    EXPECT_EQ(status(post(kJson + name + "\r\n")), 400) << name;
}

TEST(RequestGuard, RefusesWhatIsNoRequest) {
  for (const char* line : {"", "GET", "GET /", "GET / HTTP/2", "GET  / HTTP/1.1", "GET http://x/ HTTP/1.1",
                           "GET / HTTP/1.1 x", "GET /\t HTTP/1.1", "GET /\x01 HTTP/1.1"})
    EXPECT_EQ(status(std::string(line) + "\r\n" + kHost + "\r\n"), 400) << line;
  for (const char* method : {"OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "get"})
    EXPECT_EQ(status(std::string(method) + " / HTTP/1.1\r\n" + kHost + "\r\n"), 405) << method;
  EXPECT_EQ(status(get(kHost, "/" + std::string(kMostTargetBytes, 'a'))), 414);
  std::string many;
  for (std::size_t i = 0; i <= kMostHeaders; ++i) many += "A: b\r\n";
  EXPECT_EQ(status(get(kHost + many)), 431);
  for (const char* header :
       {"A : b\r\n", " folded\r\n", "no colon\r\n", ": b\r\n", "A\x01: b\r\n", "A: \x7f\r\n", "A: \r b\r\n"})
    EXPECT_EQ(status(get(kHost + header)), 400) << header;
}

TEST(RequestGuard, ARefusalIsOneReplyOfHttp) {
  const std::string text = refusal_text({403, "Host: found '\xff\n<script>', expected another"});
  EXPECT_THAT(text, ::testing::StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(text, HasSubstr("Content-Security-Policy: default-src 'none'\r\n"));
  EXPECT_THAT(text, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  const std::size_t end = text.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos);
  EXPECT_THAT(text, HasSubstr("Content-Length: " + std::to_string(text.size() - end - 4) + "\r\n"));
}

// Files that are none, output that cannot be written: one line, exit 2, and nothing half-written.

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
