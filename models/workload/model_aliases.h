// Names under which people, tables and logs write models.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moesim::models {

enum class NameMatch : unsigned char {
  kWhole,   // nothing but the name
  kRemark,  // words may follow it: "DeepSeek-V3 (presumed)", but "DeepSeek-V3.2" is another model
};

// The built-in model that a name means whatever its letters' case and its punctuation ("DeepSeek-V3 671B",
// "Qwen3_30B_a3B"), or a JSON object for models that are no built-in ones but known by name (Llama 3).
// nullopt: not known.
std::optional<std::string> model_called(std::string_view name, NameMatch match = NameMatch::kWhole);

}  // namespace moesim::models
