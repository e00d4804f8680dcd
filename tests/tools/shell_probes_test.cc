// Small scripts of all kinds, by bash and by ShellScript: what the launcher is given is the same, or it is
// said that it cannot be told. The scripts are shell_probes.txt: one a line, or between %%< and %%>; one that
// calls no torchrun ends with the line below.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "process.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {
namespace {

using Launches = std::vector<std::vector<std::string>>;

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

std::string written(const Launches& launches) {
  std::string text;
  for (const auto& words : launches) {
    text += "torchrun";
    for (const std::string& word : words) text += " <" + word + ">";
    text += "\n";
  }
  return text;
}

TEST(ShellProbes, AreReadAsBashReadsThemOrSaidToBeUnknown) {
  const std::vector<std::string> scripts = probes();
  ASSERT_GE(scripts.size(), 390U);
  const std::vector<Launches> bash = launches_by_bash(scripts);
  std::size_t same = 0, unknown = 0, refused = 0;
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    const Told ours = told(scripts[i]);
    if (!ours.refused.empty())
      ++refused;
    else if (ours.launches == bash[i])
      ++same;
    else if (!ours.certain)
      ++unknown;
    else
      ADD_FAILURE() << scripts[i] << "bash:\n" << written(bash[i]) << "ours:\n" << written(ours.launches);
  }
  // Most are read; what scripts rarely have is refused by name.
  EXPECT_GT(same, scripts.size() * 3 / 5) << unknown << " unknown, " << refused << " refused";
  EXPECT_LT(refused, scripts.size() / 4);
}

}  // namespace
}  // namespace moesim::tools
