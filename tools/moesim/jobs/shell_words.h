// What a shell script would run, told without running it: the script is followed as bash does, with "unknown"
// as a value. What depends on the machine is unknown and said so where it matters.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::tools {

// One command that is no builtin, its words expanded. A word may hold unknown pieces
// (ShellScript::unknown()).
struct ShellCommand {
  std::vector<std::string> words;
  SourcePlace place;
  bool perhaps = false;      // it runs under a condition that cannot be told
  std::string nodes, tasks;  // $SLURM_NNODES and $SLURM_NTASKS_PER_NODE where it runs
  std::string flash, fused;  // $NVTE_FLASH_ATTN and $NVTE_FUSED_ATTN there
};

class ShellScript {
 public:
  // Follows the script with `variables` ("NAME=VALUE"; "1=VALUE" is $1) in its environment; "#SBATCH" lines
  // at its start say the variables of Slurm. Throws InputError with the place for what is no syntax of bash,
  // for what cannot be followed, and above the limits of job_file.h.
  ShellScript(std::string_view text, const std::string& file, const std::vector<std::string>& variables);

  const std::vector<ShellCommand>& commands() const { return commands_; }

  // Variables that the script asks about, and that it does not set: taken as not set.
  const std::set<std::string>& assumed() const { return assumed_; }
  // What was taken for granted, a line each.
  const std::set<std::string>& notes() const { return notes_; }

  // Why a word cannot be told; empty where it can.
  std::string unknown(std::string_view word) const;
  // The word for people, unknown pieces as they stand in the script.
  std::string shown(std::string_view word) const;

 private:
  friend class ShellRun;
  struct Reason {
    std::string text, why;
  };
  std::vector<ShellCommand> commands_;
  std::vector<Reason> reasons_;  // an unknown piece is kUnknown, its place in this list, kUnknown
  std::set<std::string> assumed_, notes_;
};

}  // namespace moesim::tools
