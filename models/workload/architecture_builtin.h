// The built-in models.
#pragma once

#include <vector>

#include "models/workload/architecture.h"

namespace moesim::models {

const std::vector<Architecture>& builtin_architectures();

}  // namespace moesim::models
