// What a shell script would run, told without running it: variables, arrays, defaults, arithmetic and simple
// conditions are followed, everything else is unknown and said so where it matters.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/input_error.h"

namespace moesim::tools {

// One simple command with its words expanded. A word may hold unknown pieces (ShellScript::unknown()).
struct ShellCommand {
  std::vector<std::string> words;
  SourcePlace place;
};

class ShellScript {
 public:
  // Follows the script with `variables` ("NAME=VALUE") in its environment. Throws InputError with the place
  // for quotes that do not end, nesting or expansions above the limits of job_file.h.
  ShellScript(std::string_view text, const std::string& file, const std::vector<std::string>& variables);

  const std::vector<ShellCommand>& commands() const { return commands_; }
  // The value of a variable at the end of the script; empty where nobody says it.
  std::string variable(std::string_view name) const;

  // Variables that the script asks about, and that nobody says: taken as not set.
  const std::set<std::string>& assumed() const { return assumed_; }

  // Why a word cannot be told; empty where it can.
  std::string unknown(std::string_view word) const;
  // The word for people, unknown pieces as they stand in the script.
  std::string shown(std::string_view word) const;

 private:
  friend class ShellReader;
  struct Reason {
    std::string text, why;
    bool outside = false;  // a variable that the file does not say
  };
  std::vector<ShellCommand> commands_;
  std::vector<Reason> reasons_;  // an unknown piece is kUnknown, its place in this list, kUnknown
  std::vector<std::pair<std::string, std::string>> variables_;
  std::set<std::string> assumed_;
};

}  // namespace moesim::tools
