// Cases that are data: JSON beside the tests that run them.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file_io.h"

namespace moesim::testing {

// A list of a file under tests/, by value so that a loop may run over it; an empty one would test nothing.
inline nlohmann::ordered_json cases(const char* file, const std::string& list) {
  const std::filesystem::path path = std::filesystem::path(MOESIM_SOURCE_DIR) / "tests" / file;
  nlohmann::ordered_json all = nlohmann::ordered_json::parse(read_file(path)).at(list);
  check(!all.empty(), "a list of cases has some");
  return all;
}

}  // namespace moesim::testing
