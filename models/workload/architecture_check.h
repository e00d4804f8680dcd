// What every description of a model must keep, whoever wrote it.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {

// Throws InputError at `node` for sizes that contradict each other, layers without sizes, and counts beyond
// 64 bits.
void check_consistent(const Architecture& model, const JsonNode& node);

// Takes the letters of a hybrid model's layers; the number of layers is theirs. Throws InputError at `node`
// for letters that no layer has.
void set_pattern(Architecture& model, const std::string& pattern, const JsonNode& node);

// Changes one size of a model. Throws InputError at `value` for a number that no model has there, and for
// what contradicts the rest of the model.
void change_size(Architecture& model, std::int64_t Architecture::*size, const JsonNode& value);

}  // namespace moesim::models
