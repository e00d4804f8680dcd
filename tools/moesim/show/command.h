// A scenario as the shell command that asks about it again.
#pragma once

#include <string>
#include <vector>

#include "models/workload/scenario.h"

namespace moesim::tools {

// Returns "moesim compare", the job's file where there is one, and an option for every value that differs from its default. They read back to the
// same scenario, field for field, as long as the files of model and routing still exist.
std::vector<std::string> command_words(const models::Scenario& scenario);

// Quotes words for a shell, in lines of at most `width` columns that end in a backslash.
std::string command_text(const std::vector<std::string>& words, std::size_t width = 100);

// Quotes a word for a shell: in single quotes where necessary.
std::string shell_word(const std::string& word);

// Version in every output, e.g. "0.1.0".
const char* version();

}  // namespace moesim::tools
