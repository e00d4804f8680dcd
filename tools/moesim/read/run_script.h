// Runs a script under bash with launchers that only record their arguments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

// Returns every launcher that the script of `text` (in `file`) calls, in order, with its words. `variables`:
// "NAME=VALUE" for its environment, "1=VALUE" for $1. Throws InputError without bash, for a launcher called
// by its path, and where the script still runs after `seconds`.
std::vector<ShellCommand> run_with_launchers(std::string_view text, const std::string& file,
                                             const std::vector<std::string>& variables, double seconds);

}  // namespace moesim::tools
