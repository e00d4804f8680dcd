// Models by name (models.json): the built-in ones, and names in tables, logs and text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/workload/architecture.h"

namespace moesim::models {

const std::vector<Architecture>& builtin_architectures();

enum class NameMatch : unsigned char {
  kWhole,   // the whole text is the name
  kRemark,  // words may follow: "DeepSeek-V3 (presumed)", but "DeepSeek-V3.2" is another model
};

// Returns the built-in model of a name, ignoring case and punctuation ("DeepSeek-V3 671B", "Qwen3_30B_a3B"),
// or a JSON object for models known by name but not built in (Llama 3). nullopt: unknown.
std::optional<std::string> model_called(std::string_view name, NameMatch match = NameMatch::kWhole);

}  // namespace moesim::models
