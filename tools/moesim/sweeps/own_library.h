// Parts of the program that only some verbs load.
#pragma once

#include <filesystem>
#include <string_view>

namespace moesim::tools {

// Where a library of ours is: beside the program in a build folder, below lib/ where it is installed. It need
// not exist.
std::filesystem::path own_library(std::string_view name);

}  // namespace moesim::tools
