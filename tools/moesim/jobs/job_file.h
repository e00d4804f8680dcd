// A training job as the files of its framework say it: arguments with values and places. Readers of command
// lines, shell scripts, YAML, TOML and JSON; what the arguments mean is tools/moesim/jobs/arguments.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::tools {

// One argument as it stands in a file.
struct Setting {
  std::string name;                 // "num_layers"; of TOML and JSON with its section: "training.seq_len"
  std::string shown;                // as it was written: "--num-layers", "model.num_layers"
  std::vector<std::string> values;  // none: said without a value
  std::string unknown;              // why a value cannot be told without running the file; empty: it can
  SourcePlace place;
};

struct JobFile {
  std::string file;
  std::vector<Setting> settings;
  std::optional<std::int64_t> gpus;  // of the launcher (torchrun, srun)
  // What stands where an argument should and is none: "$EXTRA_ARGS".
  std::vector<std::string> unread;
  bool complete = false;             // says every argument of its framework, defaults too
  std::vector<std::string> assumed;  // variables that were taken as not set
  std::vector<std::string> remarks;  // what else was taken for granted, a line each
};

// Most bytes of a file, levels of nesting in it, and bytes that its variables expand to.
inline constexpr std::uint64_t kMaxJobFileBytes = std::uint64_t{4} << 20;
inline constexpr int kMaxJobFileDepth = 64;
inline constexpr std::size_t kMaxExpandedBytes = std::size_t{16} << 20;

// Splits words into settings: "--name value ...", "--name=value". Words before the first "--" are dropped.
std::vector<Setting> settings_of_words(const std::vector<std::string>& words, const SourcePlace& place);

// Read a text. Throw InputError with the place for what is not of the format or above the limits. `with`:
// what the user adds: arguments ("--seq-length 8192"), or NAME=VALUE: a variable of a script, a key of the
// other formats.
JobFile read_shell_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);
// Runs the script under bash, with launchers (torchrun, python, srun, ...) that only note their arguments,
// and takes these: exact, and said by the user alone. Its outputs are not shown. Throws InputError without
// bash, for a script that starts no job or several, that calls a launcher by its path, or that still runs
// after `seconds`.
JobFile read_job_by_running(const std::string& file, const std::vector<std::string>& with,
                            double seconds = 20);
// Words of a command as a shell has passed them: a launcher and its program may stand in front of the
// arguments.
JobFile read_command_job(const std::vector<std::string>& words, const std::vector<std::string>& with);
// Keys by the name they end in: sections of Megatron's, Megatron-Bridge's and other YAML files differ. Plain
// values follow YAML 1.1, as PyYAML and OmegaConf do; of a key that stands twice the last counts, with a
// remark.
JobFile read_yaml_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);
JobFile read_toml_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);
JobFile read_json_job(std::string_view text, const std::string& file, const std::vector<std::string>& with);

}  // namespace moesim::tools
