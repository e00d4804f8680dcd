#include "tools/moesim/jobs/shell_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moesim::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The words of the last command.
std::vector<std::string> last(const char* text, const std::vector<std::string>& variables = {}) {
  const ShellScript script(text, "run.sh", variables);
  if (script.commands().empty()) return {};
  std::vector<std::string> words;
  for (const std::string& word : script.commands().back().words) words.push_back(script.shown(word));
  return words;
}

TEST(ShellWords, FollowsVariablesDefaultsAndSums) {
  EXPECT_THAT(last("TP=2\nPP=${PP:-4}\nrun --tp $TP --pp ${PP} --n $((TP * PP + 1))"),
              ElementsAre("run", "--tp", "2", "--pp", "4", "--n", "9"));
  EXPECT_THAT(last("TP=${TP:-1}\nrun $TP", {"TP=8"}), ElementsAre("run", "8"));
  EXPECT_THAT(last("TP=2; TP=4; run $TP"), ElementsAre("run", "4"));
  EXPECT_THAT(last("export A=x\nA=y run $A"), ElementsAre("run", "y"));
  EXPECT_THAT(last("A=\"--x 1 \\\n --y 2\"\nrun $A"), ElementsAre("run", "--x", "1", "--y", "2"));
  EXPECT_THAT(last("A=\"--x 1\"\nrun \"$A\""), ElementsAre("run", "--x 1"));
}

TEST(ShellWords, FollowsArrays) {
  EXPECT_THAT(last("A=(\n  --x 1  # why\n  --y \"2 3\"\n)\nA+=(--z)\nrun \"${A[@]}\" ${A[@]}"),
              ElementsAre("run", "--x", "1", "--y", "2 3", "--z", "--x", "1", "--y", "2", "3", "--z"));
  EXPECT_THAT(last("A=()\nrun ${A[@]} a"), ElementsAre("run", "a"));
}

TEST(ShellWords, FollowsConditionsThatCanBeTold) {
  const char* text =
      "X=big\nif [ $X = small ]; then\n  N=1\nelif [[ \"$X\" == \"big\" ]]; then\n  N=2\nelse\n  "
      "N=3\nfi\nrun $N";
  EXPECT_THAT(last(text), ElementsAre("run", "2"));
  EXPECT_THAT(last("N=1\nif [ -z \"$E\" ]; then N=2; fi\nrun $N", {"E="}), ElementsAre("run", "2"));
  EXPECT_THAT(last("N=1\nif [ 8 -gt 4 ]; then N=2; else N=3; fi\nrun $N"), ElementsAre("run", "2"));
  EXPECT_THAT(last("N=1\nif [ ! 8 -gt 4 ]; then N=2; fi\nrun $N"), ElementsAre("run", "1"));
}

// A wrong number is worse than none: what depends on the machine is unknown, with the reason.
TEST(ShellWords, WhatNobodyCanTellIsUnknown) {
  for (const char* text :
       {"if [ -f file ]; then N=2; fi\nrun $N", "N=$(nproc)\nrun $N", "run $N", "N=`hostname`\nrun $N",
        "for i in 1 2; do N=$i; done\nrun $N", "N=1\nif true && [ 1 = 1 ]; then N=2; fi\nrun $N",
        "N=${X//a/b}\nrun $N", "N=$((X * 2))\nrun $N", "while read l; do N=3; done\nrun $N"}) {
    const ShellScript script(text, "run.sh", {});
    const std::vector<std::string>& words = script.commands().back().words;
    ASSERT_EQ(words.size(), 2U) << text;
    EXPECT_NE(script.unknown(words[1]), "") << text;
  }
  const ShellScript known("N=1\nrun $N", "run.sh", {});
  EXPECT_EQ(known.unknown(known.commands().back().words[1]), "");
}

TEST(ShellWords, CommentsQuotesAndHereDocumentsAreNoCommands) {
  EXPECT_THAT(last("run 'a $b' \"c\"d # e\n"), ElementsAre("run", "a $b", "cd"));
  EXPECT_THAT(last("cat <<EOF > file\nrun --x 1\nEOF\nlast"), ElementsAre("last"));
  EXPECT_THAT(last("# only a comment"), IsEmpty());
}

TEST(ShellWords, RefusesWhatDoesNotEnd) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      ShellScript(text, "run.sh", {});
      return "";
    } catch (const InputError& e) {
      return e.what();
    }
  };
  EXPECT_THAT(error("a\nrun \"b"), HasSubstr("run.sh:2: found a quote that does not end"));
  EXPECT_THAT(error("A=(1 2"), HasSubstr("an array that does not end"));
  EXPECT_THAT(error("run $(ls"), HasSubstr("does not end"));
  std::string doubled = "A=aaaaaaaa\n";
  for (int i = 0; i < 40; ++i) doubled += "A=$A$A\n";
  EXPECT_THAT(error(doubled), HasSubstr("16 MiB"));
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += "${a:-";
  EXPECT_THAT(error("run " + nested), HasSubstr("64 deep"));
  std::string arrays;
  for (int i = 0; i < 50'000; ++i) arrays += "A=(";
  EXPECT_THAT(error(arrays), HasSubstr("arrays inside of each other, 64 deep"));
}

}  // namespace
}  // namespace moesim::tools
