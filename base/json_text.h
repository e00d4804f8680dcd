// JSON as it is printed and written to files.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moesim {

// On several lines, `indent` spaces a level, and a line end. What a terminal would obey is escaped, bytes
// that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json, int indent = 2);

// The same on one line, without its end.
std::string json_line(const nlohmann::ordered_json& json);

}  // namespace moesim
