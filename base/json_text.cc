#include "base/json_text.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace moesim {

namespace {

std::string dumped(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return printable(dumped(json, indent), "\n") + "\n";
}

std::string json_line(const nlohmann::ordered_json& json) { return printable(dumped(json, -1)); }

}  // namespace moesim
