// JSON output for printing and files.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moesim {

// Formats on several lines, `indent` spaces per level, with a final line end. Escapes terminal control
// characters and replaces bytes that are not UTF-8.
std::string json_text(const nlohmann::ordered_json& json, int indent = 2);

// Likewise on one line, without a line end.
std::string json_line(const nlohmann::ordered_json& json);

}  // namespace moesim
