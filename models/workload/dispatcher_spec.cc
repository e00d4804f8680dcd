#include "models/workload/dispatcher_spec.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace moesim::models {

namespace {

// Common names of dispatchers, with the names in answers.
constexpr std::array<std::array<std::string_view, 2>, 12> kOtherNames{{{"a2a", "alltoall"},
                                                                       {"all-to-all", "alltoall"},
                                                                       {"all2all", "alltoall"},
                                                                       {"ag", "allgather"},
                                                                       {"all-gather", "allgather"},
                                                                       {"deepep", "flex-deepep"},
                                                                       {"deep-ep", "flex-deepep"},
                                                                       {"hybridep", "flex-hybridep"},
                                                                       {"hybrid-ep", "flex-hybridep"},
                                                                       {"nccl", "alltoall"},
                                                                       {"flex", "flex-deepep"},
                                                                       {"ncclep", "nccl-ep"}}};

std::string dispatcher_named(std::string_view written) {
  std::string word = lower(written);
  for (const auto& [other, name] : kOtherNames)
    if (word == other) return std::string(name);
  return word;
}

}  // namespace

std::string DispatcherSpec::text() const {
  std::string text = name;
  for (const auto& [key, value] : options) text.append(":").append(key).append("=").append(value);
  return text;
}

DispatcherSpec DispatcherSpec::parse(const std::string& text) {
  DispatcherSpec spec;
  const std::vector<std::string_view> parts = split(text, ':');
  spec.name = dispatcher_named(trim(parts.front()));
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = trim(parts[i]);
    const std::size_t equals = part.find('=');
    const std::string key(part.substr(0, equals));
    if (key.empty())
      throw InputError(fmt::format("--dispatcher: found {}, expected name:key=value", in_quotes(text)));
    // A key alone switches something on.
    const std::string value =
        equals == std::string_view::npos ? "true" : std::string(part.substr(equals + 1));
    if (!spec.options.emplace(key, value).second)
      throw InputError(
          fmt::format("--dispatcher: found option {} twice in {}", in_quotes(key), in_quotes(text)));
  }
  return spec;
}

DispatcherSpec DispatcherSpec::parse(const JsonNode& node) {
  DispatcherSpec spec;
  if (node.is_string()) {
    try {
      spec = parse(node.string());
    } catch (const InputError& error) {
      node.fail(error.what());
    }
    spec.origin = node.place().str();
    return spec;
  }
  if (!node.is_object()) node.fail(node.describe(), "a dispatcher's name or an object with \"name\"");
  spec.origin = node.place().str();
  for (const std::string& key : node.keys()) {
    const JsonNode value = *node.find(key);
    if (key == "name") {
      spec.name = dispatcher_named(value.string());
    } else if (value.is_string()) {
      spec.options[key] = value.string();
    } else if (value.is_boolean()) {
      spec.options[key] = value.boolean() ? "true" : "false";
    } else if (value.is_integer()) {
      spec.options[key] = std::to_string(value.integer());
    } else if (value.is_number()) {
      spec.options[key] = fmt::format("{}", value.number());
    } else {
      value.fail(value.describe(), "a string, number or boolean");
    }
  }
  if (spec.name.empty()) node.fail("no \"name\"", "the name of a dispatcher");
  return spec;
}

nlohmann::ordered_json DispatcherSpec::to_json() const {
  const auto plain = [](const std::string& part) {
    return !part.empty() && part.find(':') == std::string::npos && trim(part) == part;
  };
  bool as_text = plain(name);
  for (const auto& [key, value] : options)
    as_text = as_text && plain(key) && key.find('=') == std::string::npos && plain(value);
  if (as_text) return text();
  nlohmann::ordered_json object{{"name", name}};
  for (const auto& [key, value] : options) object[key] = value;
  return object;
}

std::vector<DispatcherSpec> DispatcherSpec::parse_list(const std::string& text) {
  std::vector<DispatcherSpec> specs;
  for (const std::string_view part : split(text, ',')) specs.push_back(parse(std::string(trim(part))));
  return specs;
}

}  // namespace moesim::models
