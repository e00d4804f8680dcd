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
#include "terminal_run.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::Output;
using testing::run_moesim;
using testing::sample_folder;
using testing::with;
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

TEST(Terminal, SpareColumnsGoBeforeATableIsCut) {
  Table table({{"name", Table::Align::kLeft},
               {"first", Table::Align::kRight, true},
               {"second", Table::Align::kRight, true},
               {"third"}});
  table.row({"alpha", "1", "2", "3"});
  EXPECT_EQ(table.text(Terminal{false, 21}),
            "name   first  third\n"
            "-----  -----  -----\n"
            "alpha      1      3\n");
  EXPECT_EQ(table.text(Terminal{false, 12}),
            "name   third\n"
            "-----  -----\n"
            "alpha      3\n");
  EXPECT_THAT(table.text(kPipe), HasSubstr("name   first  second  third"));
}

TEST(Terminal, SentencesBreakBetweenWordsOnly) {
  EXPECT_EQ(wrapped("one two three\nfour", 8, 2), "one two\n  three\nfour");
  EXPECT_EQ(wrapped("one  two   three", 100), "one  two   three");
  EXPECT_EQ(wrapped("unbreakable it is\n", 4), "unbreakable\nit\nis\n");
  EXPECT_EQ(wrapped("    far in", 100, 2), "    far in");
  EXPECT_EQ(wrapped("any width at all", 0), "any width at all");
  EXPECT_EQ(wrapped("", 10), "");
}

// Output of `compare` on a terminal: nothing is cut at 80 columns, and it is one screen high at 100.
class FirstScreen : public ::testing::TestWithParam<Words> {};

TEST_P(FirstScreen, IsWholeAndShort) {
  const Variable term("TERM", "xterm-256color"), no_color("NO_COLOR", "1");
  for (const int columns : {80, 100}) {
    const Outcome outcome = testing::run_in_terminal(GetParam(), columns);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::vector<std::string> lines = lines_of(outcome.out);
    std::size_t heads = 0;
    for (const std::string& line : lines) {
      EXPECT_LE(width_of(line), static_cast<std::size_t>(columns)) << line;
      heads += line.starts_with("dispatcher ") ? 1 : 0;
    }
    EXPECT_EQ(heads, 1u) << "the table is one: " << outcome.out;
    if (columns == 100) {
      EXPECT_LE(lines.size(), 25u) << outcome.out;
    }
    EXPECT_THAT(outcome.out, HasSubstr("network infiniband-ndr"));
    EXPECT_THAT(outcome.err, Not(HasSubstr("extrapolates")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Moesim, FirstScreen,
    ::testing::Values(Words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4", "--ep", "8"},
                      Words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "h100x4", "--ep", "8",
                            "--routing", "zipf:0.8"},
                      Words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h800x4", "--ep", "8"},
                      Words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4", "--ep", "8",
                            "--dispatcher", "all"},
                      Words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4", "--scope",
                            "step"},
                      Words{"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "8",
                            "--pp", "2", "--microbatches", "8", "--scope", "step"}));

// The other verbs: the answer comes first, nothing is wider than the terminal, and 25 lines hold all.
class OtherScreen : public ::testing::TestWithParam<Words> {};

TEST_P(OtherScreen, IsWholeAndShort) {
  const Variable term("TERM", "xterm-256color"), no_color("NO_COLOR", "1");
  for (const int columns : {80, 100}) {
    const Outcome outcome = testing::run_in_terminal(GetParam(), columns);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::vector<std::string> lines = lines_of(outcome.out);
    for (const std::string& line : lines)
      EXPECT_LE(width_of(line), static_cast<std::size_t>(columns)) << line;
    if (columns == 100) {
      EXPECT_LE(lines.size(), 25u) << outcome.out;
    }
    EXPECT_THAT(lines.front(), Not(HasSubstr("batch:"))) << "the answer comes first";
    EXPECT_THAT(outcome.out, HasSubstr("network "));
    EXPECT_THAT(outcome.err, Not(HasSubstr("extrapolates")));
  }
}

Words qwen(const Words& verb, const Words& more) {
  Words words{"--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4", "--ep", "8"};
  words.insert(words.begin(), verb.begin(), verb.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    Moesim, OtherScreen,
    ::testing::Values(qwen({"whatif"}, {"--set", "cluster.nic.bandwidth=x2"}),
                      qwen({"whatif"}, {"--scope", "step", "--set", "parallel.ep=4", "--draws", "4"}),
                      qwen({"whatif"}, {"--each", "--set", "cluster.gpu.flops=x2", "--set", "topk=4"}),
                      qwen({"whatif"}, {"--crossover", "topk=1..8"}), qwen({"whatif"}, {"--sensitivity"}),
                      qwen({"whatif"}, {"--map", "topk=1..8", "parallel.micro_batch=1,2,4", "--draws", "4"}),
                      qwen({"whatif"}, {"--best", "dispatcher,recompute"}),
                      qwen({"sweep"}, {"--grid", "topk=1,2,4,8"}),
                      Words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "h100,h200", "--gpus", "32",
                            "--ep", "16"},
                      Words{"plan", "--model", "qwen3-30b-a3b", "--tokens", "1T", "--clusters", "h100",
                            "--gpus", "64", "--most", "100", "--draws", "4"},
                      Words{"replay", (sample_folder() / "scaling").string(), "--cluster", "echo-h800x2",
                            "--microbatches", "4", "--draws", "4"}));

TEST(Screen, TheBestOfAllAreShownAndTheRestIsCounted) {
  const Words words{"compare", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x4",
                    "--ep",    "8",       "--dispatcher",  "all",       "--quiet"};
  const json result = json::parse(run_moesim(with(words, {"--format", "json"})).out);
  const std::size_t all = result["scenarios"].size() + result["excluded"].size();
  const auto names = [](const std::string& text) {
    std::vector<std::string> found;
    const std::vector<std::string> lines = lines_of(text);
    auto at = std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("---"); });
    for (++at; at != lines.end() && !at->empty() && !at->starts_with("and "); ++at)
      found.push_back(at->substr(0, at->find(' ')));
    return found;
  };
  const std::string shown = run_moesim(words).out;
  const std::vector<std::string> few = names(shown);
  ASSERT_EQ(few.size(), 4u) << shown;
  EXPECT_EQ(few.front(), result["recommendation"]["dispatcher"]);
  EXPECT_THAT(shown, HasSubstr("\nand " + std::to_string(all - 4) + " more: --explain\n"));
  // None that is left out could be chosen and is faster than one that is shown.
  double slowest = 0;
  for (const json& one : result["scenarios"])
    if (std::ranges::find(few, one["dispatcher"].get<std::string>()) != few.end())
      slowest = std::max(slowest, one["time_us"]["value"].get<double>());
  for (const json& one : result["scenarios"])
    if (one["ranked"] == true && std::ranges::find(few, one["dispatcher"].get<std::string>()) == few.end()) {
      EXPECT_GE(one["time_us"]["value"].get<double>(), slowest) << one["dispatcher"];
    }
  const std::string explained = run_moesim(with(words, {"--explain"})).out;
  EXPECT_EQ(names(explained).size(), result["scenarios"].size());
  for (const json& one : result["excluded"])
    EXPECT_THAT(explained, HasSubstr("not " + one["dispatcher"].get<std::string>() + ": "));
}

// The header names what was changed of the machine.
TEST(Screen, NamesTheMachineAndWhatWasChangedOfIt) {
  const auto header = [](const Words& more) {
    return run_moesim(
               with({"compare", "--model", "mixtral-8x7b", "--ep", "8", "--draws", "0", "--quiet"}, more))
        .out;
  };
  EXPECT_THAT(header({"--cluster", "dgx-h100x4"}), HasSubstr(" on dgx-h100x4 (network infiniband-ndr): "));
  EXPECT_THAT(header({"--cluster", "dgx-h100x1"}), HasSubstr(" on dgx-h100x1: "));
  const std::string changed = header(
      {"--cluster", R"({"base": "dgx-h100x4", "network": "efa-p5", "gpu": {"hbm_bandwidth": "4TBps"}})"});
  EXPECT_THAT(changed, HasSubstr(" on dgx-h100x4 (network efa-p5 instead of infiniband-ndr; "));
  EXPECT_THAT(changed, HasSubstr("gpu.hbm_bandwidth 4000.0 GB/s instead of 3350.0 GB/s"));
  EXPECT_THAT(header({"--cluster", "dgx-h100x4", "--set", "cluster.nic.bandwidth=100GBps"}),
              HasSubstr("nic.bandwidth 100.0 GB/s instead of 50.0 GB/s"));
  EXPECT_THAT(header({"--cluster", R"({"name": "ours", "profile": "h100-sxm", "nodes": 2})"}),
              HasSubstr(" on ours (2 x 8 h100-sxm; "));
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
