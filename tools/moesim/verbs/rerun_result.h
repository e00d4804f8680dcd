// A result file as `moesim rerun` takes it: the work of others, so that nothing of it is believed.
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

// Throws InputError for what moesim did not write, and for commands that do more than compute.
RerunResult read_result(const std::string& file);

struct Redirected {
  std::vector<std::string> words;
  std::filesystem::path table;            // the last file of --out
  std::vector<std::string> not_compared;  // files that it wrote and that the result says nothing of
};

// The command with every file that it writes in `scratch` instead; of a sweep without what goes on with an
// earlier one.
Redirected redirected(const RerunResult& result, const std::filesystem::path& scratch);

}  // namespace moesim::tools
