// A scenario as the command that asks about it again, ready to paste into a shell.
#pragma once

#include <string>
#include <vector>

#include "models/workload/scenario.h"

namespace moesim::tools {

// "moesim compare" and an option for every value that is not its default. Reading them back gives the same
// scenario, field for field, wherever a file that the model or the routing comes from is still there.
std::vector<std::string> command_words(const models::Scenario& scenario);

// Words as a shell reads them, in lines of at most `width` columns that end in a backslash.
std::string command_text(const std::vector<std::string>& words, std::size_t width = 100);

// A word as a shell reads it: in single quotes where it has to be.
std::string shell_word(const std::string& word);

}  // namespace moesim::tools
