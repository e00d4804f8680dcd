#include "tools/moesim/questions/inputs.h"

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/sha256.h"

namespace moesim::tools {

nlohmann::ordered_json describe_inputs(const CommonOptions& options) {
  nlohmann::ordered_json inputs;
  inputs["command"] = options.command_line;
  inputs["seed"] = options.seed;
  inputs["files"] = nlohmann::ordered_json::object();
  return inputs;
}

void add_input_file(nlohmann::ordered_json& inputs, const std::filesystem::path& path) {
  add_input_file(inputs, path, read_file(path));
}

void add_input_file(nlohmann::ordered_json& inputs, const std::filesystem::path& path,
                    std::string_view content) {
  inputs["files"][path.string()] = {{"sha256", sha256_hex(content)}};
}

}  // namespace moesim::tools
