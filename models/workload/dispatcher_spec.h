// A requested token dispatcher: name and options, as text or JSON. models/dispatchers defines the names and
// options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// DispatcherSpec::origin of one that was chosen because none was given.
inline constexpr const char* kUsualOrigin = "default";

struct DispatcherSpec {
  std::string name;
  std::map<std::string, std::string, std::less<>> options;
  std::string origin = "--dispatcher";  // for error messages

  friend bool operator==(const DispatcherSpec&, const DispatcherSpec&) = default;
  std::string text() const;  // "name:key=value:..."
  // Parses the text form. Throws InputError for other text.
  static DispatcherSpec parse(const std::string& text);
  // Reads "name:key=value" or {"name": ..., option: value, ...}. Throws InputError with the place.
  static DispatcherSpec parse(const JsonNode& node);
  // Reads "a,b:k=v"; "all" is one dispatcher of that name.
  static std::vector<DispatcherSpec> parse_list(const std::string& text);
  // Returns JSON for parse(): the text form, or an object where the text would be ambiguous.
  nlohmann::ordered_json to_json() const;
};

}  // namespace moesim::models
