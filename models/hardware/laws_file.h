// Reads and writes the laws of profiles and networks as JSON.
#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/hardware/profile.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Reads one law (docs/schemas/profile.schema.json). Throws InputError for an unknown key, a value outside its
// range, or a matrix that is not a correlation.
ParameterSet read_law(const JsonNode& node);
nlohmann::ordered_json write_law(const ParameterSet& set);

// Computes the lower Cholesky factor of a symmetric n x n matrix; returns false where it is not positive
// semi-definite.
bool lower_factor(const std::vector<double>& matrix, std::size_t n, std::vector<double>& lower);

}  // namespace moesim::models
