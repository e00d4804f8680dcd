// Bash as it is read: words of a script, and small scripts of all kinds held against bash.
#include "tools/moesim/read/shell_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "process.h"
#include "tests/message_of.h"

namespace moesim::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Launches = std::vector<std::vector<std::string>>;
using moesim::testing::message_of;

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
  EXPECT_THAT(last("export A=x\nA=y run $A"), ElementsAre("run", "x"));
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
TEST(ShellWords, WhatOnlyARunCanTellIsUnknown) {
  for (const char* text :
       {"if [ -f file ]; then N=2; fi\nrun $N", "N=$(nproc)\nrun $N", "run $N", "N=`hostname`\nrun $N",
        "N=1\nsource more.sh\nrun $N", "N=1\ncd work && N=2\nrun $N", "N=${X//a/b}\nrun $N",
        "N=$((X * 2))\nrun $N", "while tool; do N=3; done\nrun $N", "N=*.txt\nrun $N",
        "for f in $(ls); do N=$f; done\nrun $N", "eval $(tool)\nrun $N"}) {
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
    return message_of([&] { ShellScript(text, "run.sh", {}); });
  };
  EXPECT_THAT(error("a\nrun \"b"), HasSubstr("run.sh:2: found a quote that does not end"));
  EXPECT_THAT(error("A=(1 2"), HasSubstr("an array that does not end"));
  EXPECT_THAT(error("run $(ls"), HasSubstr("does not end"));
  EXPECT_THAT(error("if true; then\nrun"), HasSubstr("expected 'fi' for the command of line 1"));
  EXPECT_THAT(error("A=1\nA=$((1 / 0))"), HasSubstr("run.sh:2: found the arithmetic '1 / 0'"));
  EXPECT_THAT(error("while true; do :; done"), HasSubstr("a loop without end?"));
  EXPECT_THAT(error("f() { f; }\nf"), HasSubstr("deep"));
  std::string doubled = "A=aaaaaaaa\n";
  for (int i = 0; i < 40; ++i) doubled += "A=$A$A\n";
  EXPECT_THAT(error(doubled), HasSubstr("16 MiB"));
  for (const char* open : {"${a:-", "$(", "$((", "`", "{ ", "( ", "! ", "if ", "A=(", "\"${x:-$("}) {
    std::string nested;
    for (int i = 0; i < 50'001; ++i) nested += open;
    EXPECT_NE(error(nested), "") << open;
  }
}

// Nested shells have the exported variables alone, and their own text.
TEST(ShellWords, FollowsTextsThatAreGivenToAShell) {
  EXPECT_THAT(last("N=1; export M=2\nbash -c 'run x$M'"), ElementsAre("run", "x2"));
  EXPECT_THAT(last("N=1\nsbatch <<EOF\n#SBATCH --nodes=1\nsrun bash -c \"run $N\"\nEOF"),
              ElementsAre("run", "1"));
  const ShellScript written("cat > job.sh <<'EOF'\nrun $1\nEOF\nbash job.sh 7", "run.sh", {});
  EXPECT_THAT(written.notes(), ElementsAre(HasSubstr("bash is run and not read")));
  const ShellScript script("#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node 8\nrun", "run.sh", {});
  EXPECT_EQ(script.commands().back().nodes, "4");
  EXPECT_EQ(script.commands().back().tasks, "8");
}

// Assumptions are reported.
TEST(ShellWords, NotesWhatItTakesForGranted) {
  const ShellScript script("source /opt/venv/bin/activate\n[ -f done ] && exit 0\nif [ -f x ]; then run; fi",
                           "run.sh", {});
  EXPECT_THAT(script.notes(), ::testing::SizeIs(2));
  EXPECT_TRUE(script.commands().back().perhaps);
}

// Small scripts of all kinds, by bash and by ShellScript: what the launcher is given is the same, or it is
// said that it cannot be told. The scripts are shell_probes.txt: one a line, or between %%< and %%>; one that
// calls no torchrun ends with the line below.

constexpr const char* kLauncher =
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --seq-length $S\n";

std::vector<std::string> probes() {
  std::ifstream in(MOESIM_SOURCE_DIR "/tests/tools/shell_probes.txt");
  std::vector<std::string> all;
  bool block = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "%%<" || line == "%%>") {
      block = line == "%%<";
      if (block) all.emplace_back();
    } else if (block) {
      all.back() += line + "\n";
    } else {
      all.push_back(line + "\n");
    }
  }
  for (std::string& text : all)
    if (text.find("torchrun") == std::string::npos) text += kLauncher;
  return all;
}

// Every script in a folder of its own; the launcher notes its words, "\x1e" in front of each call, "\x1f" in
// front of each word.
std::vector<Launches> launches_by_bash(const std::vector<std::string>& scripts) {
  const testing::TempFolder folder;
  const std::string at = folder.path().string();
  std::string driver =
      "mkdir " + at + "/bin\ncd " + at +
      "/bin\ncat > torchrun <<'END'\n#!/bin/sh\nprintf '\\036' >> $NOTED\nfor word in \"$@\"; do printf "
      "'\\037%s' "
      "\"$word\" >> $NOTED; done\nEND\n"
      "cat > srun <<'END'\n#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\n"
      "[ $# -gt 0 ] && exec \"$@\"\nexec bash\nEND\ncp srun sbatch\nchmod +x *\n";
  for (std::size_t i = 0; i < scripts.size(); ++i) folder.write(std::to_string(i) + ".sh", scripts[i]);
  driver += "cd " + at + "\nulimit -t 20\nrun() {\n  for ((i = $1; i < " + std::to_string(scripts.size()) +
            "; i += 4)); do\n    mkdir $i\n    (cd $i; NOTED=" + at +
            "/$i.out exec bash ../$i.sh) < /dev/null > /dev/null 2>&1\n  done\n}\n"
            "for part in 0 1 2 3; do run $part & done\nwait\n";
  folder.write("driver", driver);
  EXPECT_EQ(std::system(("env -i PATH=" + at + "/bin:/usr/bin:/bin bash " + at + "/driver").c_str()), 0);
  std::vector<Launches> all;
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    Launches launches;
    std::ifstream in(folder / (std::to_string(i) + ".out"), std::ios::binary);
    for (char c = 0; in.get(c);) {
      if (c == '\x1e')
        launches.emplace_back();
      else if (c == '\x1f')
        launches.back().emplace_back();
      else
        launches.back().back() += c;
    }
    all.push_back(std::move(launches));
  }
  return all;
}

struct Told {
  Launches launches;
  bool certain = true;
  std::string refused;
};

Told told(const std::string& script) {
  Told result;
  try {
    const ShellScript read(script, "probe.sh", {});
    result.certain = read.assumed().empty() && read.notes().empty();
    for (const ShellCommand& command : read.commands()) {
      const auto at = std::find(command.words.begin(), command.words.end(), "torchrun");
      if (at == command.words.end()) continue;
      result.certain = result.certain && !command.perhaps;
      result.launches.emplace_back();
      for (auto word = at + 1; word != command.words.end(); ++word) {
        result.certain = result.certain && read.unknown(*word).empty();
        result.launches.back().push_back(read.shown(*word));
      }
    }
  } catch (const InputError& error) {
    result.refused = error.what();
  }
  return result;
}

TEST(ShellProbes, AreReadAsBashReadsThemOrSaidToBeUnknown) {
  const std::vector<std::string> scripts = probes();
  const std::vector<Launches> bash = launches_by_bash(scripts);
  std::size_t certain = 0, unknown = 0, refused = 0;
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    const Told ours = told(scripts[i]);
    ++(!ours.refused.empty() ? refused : ours.certain ? certain : unknown);
    if (ours.refused.empty() && ours.certain) {
      EXPECT_EQ(ours.launches, bash[i]) << scripts[i];
    }
  }
  // Exact: who adds a probe, or reads more of one, counts again.
  EXPECT_EQ(certain, 226U);
  EXPECT_EQ(unknown, 98U);
  EXPECT_EQ(refused, 74U);
}

}  // namespace
}  // namespace moesim::tools
