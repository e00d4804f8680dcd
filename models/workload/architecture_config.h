// Reading the config.json of somebody else's model.
#pragma once

#include <string>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {

// The object of a Hugging Face config.json, or one with DeepSeek's own names. Throws InputError for keys that
// make another model than Architecture describes, at their place, and for missing or impossible values.
// `name` as for Architecture::parse().
Architecture parse_config(const JsonNode& node, const std::string& name);

}  // namespace moesim::models
