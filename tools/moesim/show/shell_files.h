// Completions for bash and the man page, generated from the definition of the command line.
#pragma once

#include <string>

#include "tools/moesim/show/options.h"

namespace moesim::tools {

// Returns moesim(1) in roff: synopsis, every verb with its options, defaults and examples.
std::string man_page(const CLI::App& app);

// Returns completions for verbs, options, listed values ("table|json|csv") and files.
std::string bash_completion(const CLI::App& app);

}  // namespace moesim::tools
