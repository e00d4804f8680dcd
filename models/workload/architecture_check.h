// Consistency checks for every description of a model, whatever its format.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {

// Throws InputError at `node` for sizes that contradict each other, layers without sizes, and counts beyond
// 64 bits.
void check_consistent(const Architecture& model, const JsonNode& node);

// Sets the letters of a hybrid model's layers, and with them the number of layers. Throws InputError at
// `node` for an unknown letter.
void set_pattern(Architecture& model, const std::string& pattern, const JsonNode& node);

// Changes one size of a model. Throws InputError at `value` for an impossible number and for a contradiction
// with the rest of the model.
void change_size(Architecture& model, std::int64_t Architecture::*size, const JsonNode& value);

}  // namespace moesim::models
