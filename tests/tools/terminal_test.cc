// Output for people: colours on a terminal only, tables no wider than it, bars and sparklines, sentences that
// explain.
#include "tools/moesim/show/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "process.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::Output;
using testing::run_moesim;
using testing::sample_folder;
using Words = std::vector<std::string>;

const Terminal kPipe{};
const Terminal kColors{true, 0};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Without the sequences that colour it.
std::string uncoloured(std::string line) {
  for (std::size_t at; (at = line.find('\033')) != std::string::npos;)
    line.erase(at, line.find('m', at) - at + 1);
  return line;
}

// A variable of the environment for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    set(value);
  }
  ~Variable() { set(had_ ? before_.c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }
  const char* name_;
  std::string before_;
  bool had_ = false;
};

Words compare() {
  return {"compare", "--model", "mixtral-8x7b", "--cluster",          "dgx-h100x1", "--ep",      "8",
          "--draws", "4",       "--dispatcher", "allgather,alltoall", "--quiet",    "--routing", "zipf:1.2"};
}

TEST(Terminal, NothingButTextGoesIntoAPipe) {
  const Variable term("TERM", "xterm-256color"), no_color("NO_COLOR", nullptr), columns("COLUMNS", "40");
  const Outcome outcome = run_moesim(compare());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
  const Variable other("COLUMNS", "200");
  EXPECT_EQ(run_moesim(compare()).out, outcome.out) << "the environment changes nothing";
}

TEST(Terminal, TheBestIsColouredOnATerminal) {
  const Variable term("TERM", "xterm-256color"), no_color("NO_COLOR", nullptr);
  // Without a choice one can always be named.
  const Outcome outcome = run_moesim({"compare", "--model", "deepseek-v2-lite", "--cluster", "dgx-h100x1",
                                      "--ep", "8", "--dispatcher", "alltoall", "--quiet"},
                                     {}, Output::kTerminal);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\033[1;38;5;36malltoall *"));
}

TEST(Terminal, NoColorIsRespected) {
  const Variable term("TERM", "xterm-256color"), no_color("NO_COLOR", "1");
  const Outcome outcome = run_moesim(compare(), {}, Output::kTerminal);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
}

TEST(Terminal, TablesAndBarsAreNoWiderThanIt) {
  const Variable term("TERM", "xterm-256color"), no_color("NO_COLOR", nullptr);
  const Words replay{"replay", (sample_folder() / "scaling").string(), "--microbatches", "4", "--quiet"};
  for (const Words& words : {compare(), replay}) {
    const Outcome outcome = run_moesim(words, {}, Output::kTerminal);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::size_t tables = 0;
    for (const std::string& line : lines_of(outcome.out)) {
      // Sentences are wrapped by the terminal; columns must not be.
      if (line.find("  ") == std::string::npos) continue;
      EXPECT_LE(width_of(uncoloured(line)), static_cast<std::size_t>(testing::kTerminalColumns)) << line;
      ++tables;
    }
    EXPECT_GE(tables, 6u);
  }
}

TEST(Terminal, AWideTableIsCutIntoBlocksThatRepeatTheFirstColumn) {
  Table table({{"name", Table::Align::kLeft}, {"first"}, {"second"}, {"third"}});
  table.row({"alpha", "1", "2", "3"});
  table.separator();
  table.row({"beta", "10", "20", "30"});
  const Terminal narrow{false, 21};
  EXPECT_EQ(table.text(narrow),
            "name   first  second\n"
            "-----  -----  ------\n"
            "alpha      1       2\n"
            "-----  -----  ------\n"
            "beta      10      20\n"
            "\n"
            "name   third\n"
            "-----  -----\n"
            "alpha      3\n"
            "-----  -----\n"
            "beta      30\n");
  EXPECT_EQ(lines_of(table.text(kPipe)).size(), 5u);
  // One column more than fits by itself is printed all the same.
  EXPECT_EQ(lines_of(table.text(Terminal{false, 1})).size(), 3u * 5 + 2);
}

TEST(Terminal, WidthCountsCharactersNotBytesAndNoColours) {
  EXPECT_EQ(width_of("▁█x"), 3u);
  EXPECT_EQ(width_of(inked("best", Ink::kBest, kColors)), 4u);
  EXPECT_EQ(inked("best", Ink::kBest, kPipe), "best");
}

TEST(Bars, PartsEndToEndFillWhatTheyShouldAndNoMore) {
  const std::vector<BarPart> parts{
      {'A', "first", Ink::kBlue, 3}, {'B', "second", Ink::kGreen, 1}, {'C', "third", Ink::kOrange, 0}};
  EXPECT_EQ(bar(parts, 4, 8, kPipe), "AAAAAABB");
  EXPECT_EQ(bar(parts, 8, 8, kPipe), "AAAB");
  EXPECT_EQ(bar(parts, 0, 8, kPipe), "");
  EXPECT_EQ(width_of(bar(parts, 4, 8, kColors)), 8u);
  const std::vector<std::vector<BarPart>> bars{parts};
  EXPECT_EQ(bar_key(bars, 0, kPipe), "A first  B second");
  EXPECT_EQ(bar_key(bars, 1, Terminal{false, 12}), " A first\n B second");
}

TEST(Bars, TheBarsOfACompareAddUpToItsTimes) {
  const Outcome outcome = run_moesim(compare());
  const auto result = nlohmann::json::parse([] {
    Words words = compare();
    words.insert(words.end(), {"--format", "json"});
    return run_moesim(words).out;
  }());
  double longest = 0;
  for (const auto& scenario : result.at("scenarios"))
    longest = std::max(longest, scenario.at("time_us").at("value").get<double>());
  const TimeUnit unit = TimeUnit::of(longest);
  std::size_t found = 0, full = 0;
  std::vector<std::pair<double, std::size_t>> bars;
  for (const std::string& line : lines_of(outcome.out)) {
    const std::size_t from = line.find("AA");
    if (from == std::string::npos) continue;
    const std::size_t length = line.find(' ', from) - from;
    bars.emplace_back(std::stod(line.substr(line.find_last_of(' '))), length);
    full = std::max(full, length);
    ++found;
  }
  EXPECT_EQ(found, result.at("scenarios").size());
  for (const auto& [time, length] : bars)
    EXPECT_NEAR(static_cast<double>(length), time / unit.per_us / longest * static_cast<double>(full), 1.0);
}

TEST(Bars, SparklinesShowTheLargestOfEveryRun) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 4, 8}), "▁▅█");
  EXPECT_EQ(sparkline(std::vector<double>{1, 1, 9, 1}, 2), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{}), "");
  EXPECT_EQ(sparkline(std::vector<double>{5, 5}, 64, false), "▁▁");
}

TEST(Explain, TheCriticalPathOfAReplayReadsAsSentences) {
  const Words words{"replay", (sample_folder() / "realistic").string(), "--quiet", "--explain"};
  const Outcome outcome = run_moesim(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  Words json = words;
  json.insert(json.end(), {"--format", "json"});
  const auto result = nlohmann::json::parse(run_moesim(json).out);
  EXPECT_THAT(outcome.out, HasSubstr("the critical path"));
  // Sentences begin with their time, in order, from zero to the end of the iteration.
  std::vector<double> starts;
  bool inside = false;
  for (const std::string& line : lines_of(outcome.out)) {
    if (line.find("the critical path") == 0) {
      inside = true;
      continue;
    }
    if (!inside || line.empty()) continue;
    EXPECT_TRUE(line.ends_with('.')) << line;
    starts.push_back(std::stod(line));
  }
  ASSERT_GE(starts.size(), 4u);
  EXPECT_LE(starts.size(), 26u);
  EXPECT_DOUBLE_EQ(starts.front(), 0);
  EXPECT_TRUE(std::is_sorted(starts.begin(), starts.end()));
  EXPECT_NEAR(starts.back(), result.at("iteration_us").at("value").get<double>() * 1e-3, 0.006);
}

TEST(Explain, EveryDispatcherIsExplainedAndTheTimesAddUp) {
  Words words = compare();
  words.emplace_back("--explain");
  const Outcome outcome = run_moesim(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* dispatcher : {"allgather", "alltoall"})
    EXPECT_THAT(outcome.out, HasSubstr(std::string(dispatcher) + ": what rank "));
  double shares = 0;
  for (const std::string& line : lines_of(outcome.out.substr(outcome.out.find("alltoall: what rank "))))
    if (const std::size_t at = line.find(" %"); at != std::string::npos && line.ends_with('.'))
      shares += std::stod(line.substr(line.rfind(", ", at) + 2));
  EXPECT_GT(shares, 70);
  EXPECT_LT(shares, 101);
}

// One layer of a step is described, and its shares are of that layer.
TEST(Explain, TellsALayerOfAStep) {
  const Outcome outcome = run_moesim({"compare", "--scope", "step", "--model", "mixtral-8x7b", "--dispatcher",
                                      "alltoall", "--explain", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::size_t at = outcome.out.find("in one MoE layer of the step");
  ASSERT_NE(at, std::string::npos);
  double shares = 0;
  for (const std::string& line : lines_of(outcome.out.substr(at)))
    if (const std::size_t percent = line.find(" %"); percent != std::string::npos && line.ends_with('.'))
      shares += std::stod(line.substr(line.rfind(", ", percent) + 2));
  EXPECT_GT(shares, 70);
  EXPECT_LT(shares, 101);
}

}  // namespace
}  // namespace moesim::tools
