// What a result was computed from: everything needed to run it again, with the SHA-256 of every input file.
#pragma once

#include <filesystem>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// {"command": [...], "seed": n, "files": {}}.
nlohmann::ordered_json describe_inputs(const CommonOptions& options);

// Adds `path` and its SHA-256 to inputs["files"].
void add_input_file(nlohmann::ordered_json& inputs, const std::filesystem::path& path);
void add_input_file(nlohmann::ordered_json& inputs, const std::filesystem::path& path,
                    std::string_view content);

}  // namespace moesim::tools
