// Progress on a terminal during long work.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/answers/training_run.h"
#include "models/hardware/cluster.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Redirects the errors of this process to a pseudo-terminal while it exists.
class OnTerminal {
 public:
  OnTerminal() : before_(::dup(STDERR_FILENO)), reader_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    ::grantpt(reader_);
    ::unlockpt(reader_);
    const int writer = ::open(::ptsname(reader_), O_RDWR | O_NOCTTY);
    ::dup2(writer, STDERR_FILENO);
    ::close(writer);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;
  ~OnTerminal() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(reader_);
  }

  std::string shown() const {
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(reader_, buffer.data(), buffer.size());
    return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : "";
  }

 private:
  int before_, reader_;
};

TEST(ProgressLine, SaysHowFarHowFastHowLong) {
  EXPECT_EQ(ProgressLine::line(30, 120, 2), "[######------------------] 30/120  2/s  0:00:45 left");
}

TEST(ProgressLine, TellsATerminalHowFarItIsAndClearsItsLine) {
  const OnTerminal terminal;
  {
    ProgressLine line({});
    const Progress progress = line.teller();
    ASSERT_TRUE(progress);
    progress(0, 40);
    EXPECT_EQ(terminal.shown(), "") << "what is done at once is not told";
    std::this_thread::sleep_for(std::chrono::milliseconds(230));
    progress(10, 40);
    const std::string shown = terminal.shown();
    EXPECT_THAT(shown, HasSubstr("[######------------------] 10/40"));
    EXPECT_THAT(shown, HasSubstr("0:00:00 left"));
    progress(9, 40);  // a slower thread
  }
  EXPECT_THAT(terminal.shown(), EndsWith("\r\033[K"));
}

TEST(ProgressLine, IsSilentWithQuietAndWhereNobodyLooks) {
  {
    const OnTerminal terminal;
    CommonOptions quiet;
    quiet.quiet = true;
    EXPECT_FALSE(ProgressLine(quiet).teller());
    EXPECT_EQ(terminal.shown(), "");
  }
  const int before = ::dup(STDERR_FILENO);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDERR_FILENO);
  EXPECT_FALSE(ProgressLine({}).teller());
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(nowhere);
}

// Told in forecasts, over all searches of machines, precisions and upgrades; it ends where it said it would.
TEST(ProgressOfAPlan, GrowsToItsEnd) {
  models::RunQuestion q;
  q.scenario.model = models::Architecture::load("mixtral-8x7b");
  q.scenario.scope = models::Scenario::Scope::kStep;
  q.scenario.batch = models::GlobalBatch::parse("256");
  for (const char* name : {"dgx-h100x4", "dgx-h200x4"})
    q.machines.push_back({std::make_shared<const models::Cluster>(models::Cluster::load(name)), {}});
  q.tokens = 1e11;
  q.prices.price = 2;
  q.draws = 0;
  q.most = 16;
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  q.progress = [&](std::int64_t done, std::int64_t todo) { told.emplace_back(done, todo); };
  models::plan_run(q);
  ASSERT_GT(told.size(), 8u);
  EXPECT_LT(told.front().first, told.front().second / 4);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].first, told[i - 1].first);
    EXPECT_EQ(told[i].second, told.front().second);
  }
  EXPECT_EQ(told.back().first, told.back().second);
  // Two machines, each in two precisions, and four upgrades.
  EXPECT_EQ(told.back().second, (2 * 2 + 4) * q.most);
}

}  // namespace
}  // namespace moesim::tools
