// What every description of a model must keep, whoever wrote it.
#pragma once

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

}  // namespace moesim::models
