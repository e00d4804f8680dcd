// The laws of profiles and networks in their files.
#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/hardware/profile.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// One law as docs/schemas/profile.schema.json has it. Throws InputError for an unknown key, a value outside
// its range, a correlation that is none.
ParameterSet read_law(const JsonNode& node);
nlohmann::ordered_json write_law(const ParameterSet& set);

// Lower Cholesky factor of a symmetric n x n matrix; false where it is not positive semi-definite.
bool lower_factor(const std::vector<double>& matrix, std::size_t n, std::vector<double>& lower);

}  // namespace moesim::models
