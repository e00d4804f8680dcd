// The files of calibration/profiles/gpu/ and network/, of models/recipes/ and models/hardware/, compiled in
// so that moesim needs no data folder.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moesim::models {

struct EmbeddedProfile {
  std::string_view name;  // file name without ".json"
  std::string_view json;
};

std::span<const EmbeddedProfile> embedded_profiles();
std::span<const EmbeddedProfile> embedded_networks();
std::span<const EmbeddedProfile> embedded_recipes();

// Returns the file of this name as T::parse reads it; nullptr where there is none. Each file is parsed once, because
// clusters load the same few repeatedly. `files`: those of this type; `kind`: for messages, "built-in profile".
template <class T>
const T* parsed_once(std::span<const EmbeddedProfile> files, std::string_view name, const std::string& kind) {
  struct Parsed {
    std::once_flag once;
    std::optional<T> value;
  };
  static const std::unique_ptr<Parsed[]> parsed = std::make_unique<Parsed[]>(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].name != name) continue;
    std::call_once(parsed[i].once,
                   [&] { parsed[i].value = T::parse(files[i].json, kind + " " + std::string(name)); });
    return &*parsed[i].value;
  }
  return nullptr;
}

// NAME.json of the folders that models/CMakeLists.txt lists as tables: "rental_prices".
std::string_view embedded_table(std::string_view name);

}  // namespace moesim::models
