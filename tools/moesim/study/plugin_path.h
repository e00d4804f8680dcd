// Parts of the program that only some verbs load.
#pragma once

#include <filesystem>
#include <string_view>

namespace moesim::tools {

// Returns the path of a library of ours: beside the program in a build folder, below lib/ where installed. It
// need not exist.
std::filesystem::path plugin_path(std::string_view name);

}  // namespace moesim::tools
