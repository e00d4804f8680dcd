// Runs the built moesim in a terminal of a chosen width.
#pragma once

#include <string>
#include <vector>

#include "process.h"

namespace moesim::tools::testing {

Outcome run_in_terminal(const std::vector<std::string>& arguments, int columns);

}  // namespace moesim::tools::testing
