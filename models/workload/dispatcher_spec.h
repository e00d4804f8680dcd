// A token dispatcher as somebody asks for it: a name and options, as text or JSON. What the names mean and
// which options there are is models/dispatchers'.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct DispatcherSpec {
  std::string name;
  std::map<std::string, std::string, std::less<>> options;
  std::string origin = "--dispatcher";  // of messages

  std::string text() const;  // "name:key=value:..."
  // Throws InputError for a text that is not of this form.
  static DispatcherSpec parse(const std::string& text);
  // Reads "name:key=value" or {"name": ..., option: value, ...}. Throws InputError with the place.
  static DispatcherSpec parse(const JsonNode& node);
  // Reads "a,b:k=v"; "all" is one dispatcher of that name.
  static std::vector<DispatcherSpec> parse_list(const std::string& text);
  // Returns what parse() reads back: the text, or an object where a text would be read otherwise.
  nlohmann::ordered_json to_json() const;
};

}  // namespace moesim::models
