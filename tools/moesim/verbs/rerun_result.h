// A result file for `moesim rerun`, which is untrusted input.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace moesim::tools {

struct RerunResult {
  std::string file;
  nlohmann::ordered_json json;
  std::string text;
  std::vector<std::string> command;
  bool sweep = false;  // the record of a table (moesim.sweep/1)
};

// Throws InputError for files that moesim did not write, and for commands that do more than compute.
RerunResult read_result(const std::string& file);

struct Redirected {
  std::vector<std::string> words;
  std::filesystem::path table;            // the last file of --out
  std::vector<std::string> not_compared;  // written files whose content is not in the result
};

// Returns the command with all output files moved to `scratch`; for a sweep without options that resume an
// earlier one.
Redirected redirected(const RerunResult& result, const std::filesystem::path& scratch);

}  // namespace moesim::tools
