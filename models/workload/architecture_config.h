// Reads the config.json of a third-party model.
#pragma once

#include <string>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {

// Reads a Hugging Face config.json, or one with DeepSeek's own key names. Throws InputError at the place of
// keys that describe a model beyond Architecture, and for missing or impossible values. `name` as in
// Architecture::parse(); `family` of a part that names none of its own ("": none).
Architecture parse_config(const JsonNode& node, const std::string& name, const std::string& family);

}  // namespace moesim::models
