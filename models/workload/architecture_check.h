// Consistency checks for every description of a model, whatever its format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_reader.h"
#include "models/workload/architecture.h"

namespace moesim::models {

// Letters of the mixers of layers (Architecture::pattern).
inline constexpr std::string_view kMixerLetters = "*WMLCISHF";

// Throws InputError at `node` for sizes that contradict each other, layers without sizes, and counts beyond
// 64 bits.
void check_consistent(const Architecture& model, const JsonNode& node);

// Sets the letters of a hybrid model's layers, and with them the number of layers. Throws InputError at
// `node` for an unknown letter.
void set_pattern(Architecture& model, const std::string& pattern, const JsonNode& node);

// Sets what an attention leaves out of its heads: heads of 128 columns or one head where the model is narrower,
// and all of them with their own keys and values.
void fill_heads(Attention& attention, std::int64_t hidden);

}  // namespace moesim::models
