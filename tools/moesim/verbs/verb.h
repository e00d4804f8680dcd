// A verb is one file: it declares its options on a CLI11 subcommand and returns the function to run. To add
// one: write tools/moesim/verbs/<verb>.cc, declare its function here, add a line to all_verbs() in verb.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/options.h"

namespace moesim::tools {

// Runs the verb; returns the exit code: 0 done, 1 a check requested by the user failed. Throws InputError
// (exit 2).
using Run = std::function<int(const CommonOptions&)>;

struct Verb {
  std::string name;
  std::string summary;   // one line of `moesim --help`
  std::string examples;  // two worked examples, shown below the options
  // Declares options on the subcommand; the returned function runs after parsing. Keep option variables in a
  // shared_ptr captured by it.
  std::function<Run(CLI::App&)> declare;
  // The options that `--help` shows, in the order of their declaration; `--help all` shows every one. Empty:
  // both do.
  std::vector<std::string_view> usual = {};
};

// A command of a verb: `trace info`.
struct Command {
  std::string name, summary;
  std::function<Run(CLI::App&)> declare;
  std::string examples = {};
};
// Declares them behind the verb's own options, which are refused beside a command. What is returned runs the
// one that is given, else `otherwise`; without that, a command has to be given.
Run declare_commands(CLI::App& verb, const std::vector<Command>& commands, const Run& otherwise = {});

const std::vector<Verb>& all_verbs();

Verb compare_verb();
Verb completion_verb();
Verb calibrate_verb();
Verb list_verb();
Verb plan_verb();
Verb replay_verb();
Verb rerun_verb();
Verb scenario_verb();
Verb schema_verb();
Verb serve_verb();
Verb sweep_verb();
Verb validate_verb();
Verb trace_verb();
Verb whatif_verb();

// The JSON schemas of docs/schemas, by name; those that are made from tables are not among them.
const std::map<std::string_view, std::string_view>& written_schemas();

}  // namespace moesim::tools
