// What a shell and `man` know of the command line, made from the definition that parses it.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace moesim::tools {

// moesim(1) in roff: synopsis, every verb with its options, defaults and examples.
std::string man_page(const CLI::App& app);

// Completion of verbs, options, listed values ("table|json|csv") and, elsewhere, files.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace moesim::tools
