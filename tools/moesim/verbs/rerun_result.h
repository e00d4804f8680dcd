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

// The command with every file that it writes in `scratch` instead; of a sweep without what goes on with an
// earlier one. The last file of --out is `table`.
std::vector<std::string> redirected(const RerunResult& result, const std::filesystem::path& scratch,
                                    std::filesystem::path& table);

}  // namespace moesim::tools
