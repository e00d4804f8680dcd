// Finds the commands that a shell script would run without running it: interprets the script as bash does,
// with "unknown" as a value. Values that depend on the machine are unknown and reported where they matter.
// Read is what launch scripts have; other constructs are refused by name (tests/tools/shell_probes.txt).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::tools {

bool is_shell_name(std::string_view text);

// Returns a list of script_words.json, and whether a word is on it.
const std::vector<std::string>& script_words(std::string_view list);
bool is_script_word(std::string_view list, std::string_view word);

// One command other than a builtin, with expanded words. A word may contain unknown pieces
// (ShellScript::unknown()).
struct ShellCommand {
  std::vector<std::string> words;
  SourcePlace place;
  bool perhaps = false;                  // it runs under a condition with unknown result
  std::string nodes, tasks;              // $SLURM_NNODES and $SLURM_NTASKS_PER_NODE where it runs
  std::vector<std::string> environment;  // values of script_words("variables") there; may be shorter
};

// NAME=VALUE for a script; "1=VALUE" is $1.
struct ShellValue {
  explicit ShellValue(std::string_view text);

  std::string name, value;
  std::size_t argument = 0;  // 0: a variable
};

class ShellScript {
 public:
  // Interprets the script with `variables` ("NAME=VALUE"; "1=VALUE" is $1) in its environment; "#SBATCH"
  // lines at its start set the variables of Slurm. Throws InputError with the place for invalid syntax, for
  // unsupported constructs, and beyond the limits of job_file.h.
  ShellScript(std::string_view text, const std::string& file, const std::vector<std::string>& variables);

  const std::vector<ShellCommand>& commands() const { return commands_; }

  // Variables that the script reads but does not set, assumed to be unset.
  const std::set<std::string>& assumed() const { return assumed_; }
  // Other assumptions, one line each.
  const std::set<std::string>& notes() const { return notes_; }

  // Returns why a word is unknown; empty where it is known.
  std::string unknown(std::string_view word) const;
  // Returns the word for messages, with unknown pieces as written in the script.
  std::string shown(std::string_view word) const;

 private:
  friend class ShellRun;
  struct Reason {
    std::string text, why;
  };
  // Returns the reason of the unknown piece that begins at `at`.
  const Reason& reason(std::string_view word, std::size_t at) const;

  std::vector<ShellCommand> commands_;
  std::vector<Reason> reasons_;  // an unknown piece is kUnknown, its index in this list, kUnknown
  std::set<std::string> assumed_, notes_;
};

// Returns every launcher that the script of `text` (in `file`) calls, in order, with its words. `variables`:
// "NAME=VALUE" for its environment, "1=VALUE" for $1. Throws InputError without bash, for a launcher called
// by its path, and where the script still runs after `seconds`.
std::vector<ShellCommand> run_with_launchers(std::string_view text, const std::string& file,
                                             const std::vector<std::string>& variables, double seconds);

}  // namespace moesim::tools
