// Requirements on every verb before it works: help with two examples, and one line for a mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "process.h"
#include "refusal.h"
#include "terminal_run.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {
namespace {

using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const Verb& verb : all_verbs()) names.push_back(verb.name);
  return names;
}

TEST(CommandLine, ListsItsVerbs) {
  for (const auto& arguments : {std::vector<std::string>{}, std::vector<std::string>{"--help"}}) {
    const Outcome outcome = run_moesim(arguments);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    for (const std::string& verb : verb_names()) EXPECT_THAT(outcome.out, HasSubstr("  " + verb + " "));
  }
  const Outcome version_outcome = run_moesim({"--version"});
  EXPECT_EQ(version_outcome.exit_code, 0);
  EXPECT_EQ(version_outcome.out, "moesim " + std::string(version()) + "\n");
}

class EveryVerb : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryVerb, HelpShowsTwoExamples) {
  const Outcome outcome = run_moesim({GetParam(), "--help", "all"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("Examples:"));
  std::istringstream lines(outcome.out.substr(outcome.out.find("Examples:")));
  std::size_t examples = 0;
  for (std::string line; std::getline(lines, line);)
    examples += line.find("moesim " + GetParam() + " ") != std::string::npos;
  EXPECT_GE(examples, 2u) << outcome.out;
  for (const char* common : {"--format", "--quiet", "--seed", "--threads"})
    EXPECT_THAT(outcome.out, HasSubstr(common));
}

// The verbs with most options: `--help` is one screen, whose last words name the rest.
TEST(Help, ShowsTheUsualOptionsAndWhereTheOthersAre) {
  for (const Verb& verb : all_verbs()) {
    const std::string brief = run_moesim({verb.name, "--help"}).out;
    const std::string all = run_moesim({verb.name, "--help", "all"}).out;
    EXPECT_EQ(run_moesim({verb.name, "-h", "all"}).out, all);
    if (verb.usual.empty()) {
      EXPECT_EQ(brief, all) << verb.name;
      continue;
    }
    EXPECT_EQ(verb.usual.size(), 10u) << verb.name;
    const auto options = [](const std::string& text) {
      std::set<std::string> found;
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        if (const std::size_t at = line.find("--");
            line.starts_with("  ") && at < 8 && at != std::string::npos)
          found.insert(line.substr(at, line.find_first_of(" ,", at) - at));
      return found;
    };
    const std::set<std::string> few = options(brief), every = options(all);
    for (const std::string_view name : verb.usual) EXPECT_TRUE(few.contains(std::string(name))) << name;
    EXPECT_EQ(few.size(), verb.usual.size() + 1) << brief;  // and --help
    EXPECT_TRUE(std::ranges::includes(every, few)) << verb.name;
    EXPECT_GT(every.size(), 20u) << verb.name;
    EXPECT_THAT(brief, HasSubstr("`moesim " + verb.name + " --help all` shows " +
                                 std::to_string(every.size() - few.size()) + " more options"));
    EXPECT_THAT(brief, HasSubstr("Examples:"));
    // Subcommands take five lines more.
    const int lines = brief.find("Subcommands:") == std::string::npos ? 25 : 30;
    EXPECT_LE(std::ranges::count(testing::run_in_terminal({verb.name, "--help"}, 100).out, '\n'), lines)
        << brief;
  }
}

TEST_P(EveryVerb, RefusesWhatItDoesNotKnow) {
  // Something stands there for verbs that need an argument; a flag is refused before it is looked at.
  expect_refusal(run_moesim({GetParam(), "--frobnicate", "argument"}), HasSubstr("--frobnicate"));
  expect_refusal(run_moesim({GetParam(), "--frobnicate=3", "argument"}), HasSubstr("--frobnicate"));
  expect_refusal(run_moesim({GetParam(), "--format", "yaml"}), HasSubstr("yaml"));
  expect_refusal(run_moesim({GetParam(), "--seed", "soon"}), HasSubstr("soon"));
  expect_refusal(run_moesim({GetParam(), "--threads", "-1"}), HasSubstr("-1"));
  expect_refusal(run_moesim({GetParam(), "--format"}), HasSubstr("--format"));
}

INSTANTIATE_TEST_SUITE_P(Moesim, EveryVerb, ::testing::ValuesIn(verb_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moesim::tools
