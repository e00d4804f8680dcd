// A training job in its framework's files: arguments with values and places. Readers of command lines, shell
// scripts, YAML, TOML and JSON; tools/moesim/read/arguments.h interprets the arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"
#include "models/question/question.h"

namespace moesim::tools {

// One argument of a file.
struct Setting {
  std::string name;                 // "num_layers"; in TOML and JSON with its section: "training.seq_len"
  std::string shown;                // as written: "--num-layers", "model.num_layers"
  std::vector<std::string> values;  // empty: given without a value
  std::string unknown;              // why a value is unknown without running the file; empty: it is known
  SourcePlace place;
};

struct JobFile {
  std::string file;
  std::vector<Setting> settings;
  models::LaunchedGpus gpus;  // from the launcher (torchrun, srun)
  // Words in the place of arguments that are none: "$EXTRA_ARGS".
  std::vector<std::string> unread;
  bool complete = false;             // contains every argument of its framework, defaults too
  std::vector<std::string> assumed;  // variables assumed to be unset
  std::vector<std::string> remarks;  // other assumptions, one line each
};

// Limits on the bytes of a file, its nesting depth, and the bytes that its variables expand to.
inline constexpr std::uint64_t kMaxJobFileBytes = std::uint64_t{4} << 20;
inline constexpr int kMaxJobFileDepth = 64;
inline constexpr std::size_t kMaxExpandedBytes = std::size_t{16} << 20;

// No command of a script has a job's arguments.
class NoJobCommand : public InputError {
 public:
  using InputError::InputError;
};

// Splits words into settings: "--name value ...", "--name=value". Words before the first "--" are dropped.
std::vector<Setting> settings_of_words(const std::vector<std::string>& words, const SourcePlace& place);

// Parse a text. Throw InputError with the place for invalid syntax and beyond the limits. `with`: the user's
// additions: arguments ("--seq-length 8192"), or NAME=VALUE: a variable of a script, a key of the other
// formats.
JobFile read_shell_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);
// Runs the script under bash with launchers (torchrun, python, srun, ...) that only record their arguments,
// and returns these: exact, but only on request of the user. Its output is discarded. Throws InputError
// without bash, for a script that starts no job or several, that calls a launcher by its path, or that still
// runs after `seconds`.
JobFile read_job_by_running(const std::string& file, const std::vector<std::string>& with,
                            double seconds = 20);
// Parses the words of a command, expanded by a shell; a launcher and its program may precede the arguments.
JobFile read_command_job(const std::vector<std::string>& words, const std::vector<std::string>& with);
// Matches keys by the name they end in: sections of Megatron's, Megatron-Bridge's and other YAML files
// differ. Plain values follow YAML 1.1, as PyYAML and OmegaConf do; of a repeated key the last counts, with a
// remark.
JobFile read_yaml_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);
JobFile read_toml_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);
JobFile read_json_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);

}  // namespace moesim::tools
