// Parses the command line: the verb and its options.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files_read.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

class CommandLine {
 public:
  // Understands the words without the program's name; nothing is read or written but what options ask of
  // files that must be there. Throws InputError with one line for what is no command.
  explicit CommandLine(const std::vector<std::string>& given);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // The chosen verb; empty where the words ask for a text (--help, --version, none).
  const std::string& verb() const { return verb_; }
  // Runs the verb, or prints the text; returns the exit code. `files`: scope of the list of files that were
  // read.
  int run(FilesRead::Of files = FilesRead::Of::kProcess);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;  // holds the options
  CommonOptions options_;
  std::string verb_, text_;
  bool hashes_ = false;
};

// Output of a command, for callers other than a shell; thread-safe. Throws InputError wherever the program
// would exit with 2.
struct CommandOutput {
  int exit_code = 0;
  std::string text;
};
CommandOutput run_command(const std::vector<std::string>& words);

}  // namespace moesim::tools
